// The theme lacks a name for the search, tables wider than the page that the keyboard can scroll, and buttons of code
// that are not landmarks of one name.
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  requestAnimationFrame(() => {
    for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .highlight code"))
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0
  })
})
new MutationObserver(() => {
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) buttons.setAttribute("role", "none")
}).observe(document.body, { childList: true, subtree: true })
