// The theme's search dialog has no name of its own for those who hear the page.
document.querySelector('[data-md-component="search"]')?.setAttribute("aria-label", "Search");

// What is wider than the screen scrolls by itself: with the keyboard too, wherever a browser does not do it.
const scrolling = ".md-content pre > code, .md-content .md-typeset__scrollwrap, .md-content p:has(> img.wide)";
const reach = () => {
  for (const part of document.querySelectorAll(scrolling)) {
    if (part.scrollWidth > part.clientWidth) part.setAttribute("tabindex", "0");
    else part.removeAttribute("tabindex");
  }
};
addEventListener("load", reach);
addEventListener("resize", reach);
