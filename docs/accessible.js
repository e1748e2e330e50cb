// Names and focus that the theme leaves out, for readers with a keyboard or a screen reader.

// A table that is wider than the screen scrolls by itself. With the focus on the table, the arrow keys scroll it.
function markWideTables() {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (table.scrollWidth > table.clientWidth) {
      table.tabIndex = 0;
      table.setAttribute("role", "group");
      table.setAttribute("aria-label", "Wide table");
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) table.removeAttribute(name);
    }
  }
}

document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  requestAnimationFrame(markWideTables);
});
window.addEventListener("resize", markWideTables);
