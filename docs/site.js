// After the script of the theme: what it leaves out.

// Copied are the commands of a session, without prompts and output.
for (const code of document.querySelectorAll("pre > code:has(.gp)")) {
  const commands = code.cloneNode(true)
  commands.querySelectorAll(".gp, .go").forEach(each => each.remove())
  code.dataset.copy = commands.textContent.split("\n").filter(line => line.trim()).join("\n")
}

// What scrolls can be scrolled by keys, too: on touch screens the theme forbids it, in the same frame.
const focusable = new ResizeObserver(entries =>
  requestAnimationFrame(() => {
    for (const { target } of entries)
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0
      else target.removeAttribute("tabindex")
  })
)

addEventListener("load", () => {
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach(each => focusable.observe(each))
  // Buttons of a block of code are not a landmark of the page.
  document.querySelectorAll(".md-code__nav").forEach(each => each.setAttribute("role", "none"))
})

document.querySelector("[data-search]")?.addEventListener("click", () => document.getElementById("__search").click())
