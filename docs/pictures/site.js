// The theme's search dialog has no accessible name.
document.querySelector('[data-md-component="search"]')?.setAttribute("aria-label", "Search");

// Parts that are wider than the screen scroll. Not every browser makes them reachable by keyboard.
const scrolling = ".md-content pre > code, .md-content .md-typeset__scrollwrap, .md-content .formula, .md-content p:has(math)";
const reach = () => {
  for (const part of document.querySelectorAll(scrolling)) {
    if (part.scrollWidth > part.clientWidth) part.setAttribute("tabindex", "0");
    else part.removeAttribute("tabindex");
  }
};
addEventListener("load", reach);
addEventListener("resize", reach);
