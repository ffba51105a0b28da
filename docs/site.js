// Runs after the script of the theme.

// Copy buttons copy the commands of a session, without prompts and output.
for (const code of document.querySelectorAll("pre > code:has(.gp)")) {
  const commands = code.cloneNode(true)
  commands.querySelectorAll(".gp, .go").forEach(each => each.remove())
  code.dataset.copy = commands.textContent.split("\n").filter(line => line.trim()).join("\n")
}

// Let keys scroll everything that scrolls. The theme prevents it on touch screens, earlier in the same frame.
const focusable = new ResizeObserver(entries =>
  requestAnimationFrame(() => {
    for (const { target } of entries)
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0
      else target.removeAttribute("tabindex")
  })
)

addEventListener("load", () => {
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach(each => focusable.observe(each))
  // The buttons of a code block are not a landmark of the page.
  document.querySelectorAll(".md-code__nav").forEach(each => each.setAttribute("role", "none"))
})

document.querySelector("[data-search]")?.addEventListener("click", () => document.getElementById("__search").click())

// A button is replaced by the page of its game, which loads nothing before the click.
for (const button of document.querySelectorAll("button.play-here"))
  button.addEventListener("click", () => {
    const frame = document.createElement("iframe")
    frame.className = "game"
    frame.title = `${button.dataset.title}: a game to play`
    frame.src = button.dataset.src
    button.parentElement.replaceWith(frame)
    frame.focus()
  })
