// The theme's search dialog has no name of its own for those who hear the page.
document.querySelector('[data-md-component="search"]')?.setAttribute("aria-label", "Search");
