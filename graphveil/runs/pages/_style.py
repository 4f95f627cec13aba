"""The style sheet of reports, for light and dark screens and for paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfcfb; --card: #ffffff; --ink: #1d2127; --soft: #626b76; --line: #e3e6ea;
  --accent: #2457c5; --second: #c2571a; --third: #16816a; --muted: #9aa3ad; --warn: #a32020;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --card: #1b1f25; --ink: #e7eaee; --soft: #9aa4b0; --line: #2d333b;
    --accent: #7aa5ff; --second: #f29a5c; --third: #58cbae; --muted: #67717d; --warn: #ff8f87;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 1020px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 1.08rem; margin: 0 0 12px; }
p { margin: 0 0 10px; }
p:last-child { margin-bottom: 0; }
.lede { color: var(--soft); margin: 0 0 28px; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
section, .tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
section { padding: 20px 22px; margin-bottom: 14px; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(205px, 1fr));
  gap: 14px; margin-bottom: 14px;
}
.tile { padding: 16px 18px; }
.tile b {
  display: block; font-size: 1.65rem; line-height: 1.25; font-weight: 650;
  font-variant-numeric: tabular-nums;
}
.tile span { color: var(--soft); font-size: .875rem; }
.pair {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(350px, 100%), 1fr)); gap: 26px;
}
.scroll { overflow-x: auto; margin-bottom: 10px; }
table {
  border-collapse: collapse; width: 100%; font-size: .94rem; font-variant-numeric: tabular-nums;
}
th { text-align: left; color: var(--soft); font-weight: 550; }
th, td { padding: 7px 14px 7px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
blockquote { margin: 0 0 14px; padding: 2px 0 2px 16px; border-left: 3px solid var(--accent); }
.warning { border-color: var(--warn); color: var(--warn); }
figure { margin: 0; min-width: 0; }
svg[role="img"] { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); stroke-width: 1; }
.tick { fill: var(--soft); font-size: 12px; }
.label { fill: var(--soft); font-size: 12px; }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
polyline.s1 { stroke: var(--accent); }
polyline.s2 { stroke: var(--second); }
polyline.s3 { stroke: var(--third); }
polyline.dash { stroke-dasharray: 8 3; }
polyline.flat { stroke: var(--muted); stroke-dasharray: 2 4; }
.mark { fill: var(--accent); }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 2px 0 6px 52px;
  font-size: .875rem; color: var(--soft);
}
.key i { display: inline-block; width: 16px; border-top: 3px solid; margin: 0 7px 4px 0; }
.key .s1 { border-color: var(--accent); }
.key .s2 { border-color: var(--second); }
.key .s3 { border-color: var(--third); }
.key .dash { border-top-style: dashed; }
.key .flat { border-color: var(--muted); border-top-style: dotted; }
@media (max-width: 600px) {
  main { padding: 20px 12px 40px; } section { padding: 16px 14px; }
  figure { overflow-x: auto; } svg[role="img"] { min-width: 440px; }
}
h3 { font-size: .98rem; margin: 12px 0 2px; }
.notice ul { margin: 0; padding-left: 18px; }
.notice li { overflow-wrap: anywhere; }
.signature { margin-top: 26px; white-space: nowrap; overflow: hidden; }
@media print {
  body { background: none; } section, .tile { break-inside: avoid; }
  main { padding: 0; max-width: none; }
  .notice { break-before: page; border: 0; padding: 0; }
  .notice, .notice * { font-size: 12.5px; line-height: 1.38; }
  .notice h2 { font-size: 18px; }
  .notice th, .notice td { padding: 2px 14px 2px 0; }
}
"""
