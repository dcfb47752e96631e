// What the theme leaves out: a name for the search, and tables wider than the page that the keyboard can scroll.
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  requestAnimationFrame(() => {
    for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .highlight code"))
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0
  })
})
