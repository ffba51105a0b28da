// In every page that check_site.py opens.
window.siteCheck = {
  // During a transition, colors would have neither their old nor their new contrast.
  stopMotion() {
    const sheet = new CSSStyleSheet()  // unlike an element, it needs no permission of the page's policy
    sheet.replaceSync("*, ::before, ::after { transition: none !important; animation: none !important }")
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]
  },

  frames: count =>
    new Promise(done => requestAnimationFrame(() => (count > 1 ? siteCheck.frames(count - 1).then(done) : done()))),

  // Rule and element of every violation, except in frames: their pages are checked separately.
  async violations(context, options) {
    const found = await axe.run(context, { resultTypes: ["violations"], iframes: false, ...options })
    return found.violations.flatMap(rule => rule.nodes.map(node => [rule.id, node.target.join(" ")]))
  },

  // All rules but contrast, which would take most of the time, and depends on the colors alone.
  structure: () => siteCheck.violations(document, { rules: { "color-contrast": { enabled: false } } }),

  // Contrast of one element for each combination of colors, size and weight of text.
  contrast() {
    const behind = new Map([[null, ""]])
    const background = element => {
      if (!behind.has(element)) {
        const { backgroundColor, backgroundImage, opacity } = getComputedStyle(element)
        const own = backgroundColor === "rgba(0, 0, 0, 0)" && opacity === "1" ? "" : backgroundColor + opacity
        const image = backgroundImage === "none" ? "" : backgroundImage
        behind.set(element, background(element.parentElement) + own + image)
      }
      return behind.get(element)
    }
    const kinds = new Map()
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (texts.nextNode()) {
      const element = texts.currentNode.parentElement
      const { color, fontSize, fontWeight } = getComputedStyle(element)
      const kind = [color, fontSize, fontWeight, background(element)].join()
      if (!kinds.has(kind) && texts.currentNode.data.trim() && element.checkVisibility()) kinds.set(kind, element)
    }
    return siteCheck.violations({ include: [...kinds.values()] }, { runOnly: ["color-contrast"] })
  },

  // Removes the list of pages, but not the sidebar around it, which the theme resizes.
  removeNavigation: () => document.querySelector(".md-sidebar--primary .md-nav__list")?.remove(),

  // The page if it is wider than the window, and tables that are wider than an element around them.
  clipped() {
    const isClipped = each => each.scrollWidth > each.clientWidth + 1
    const wrappers = "table, .md-typeset__table, .md-typeset__scrollwrap"
    const found = document.documentElement.scrollWidth > innerWidth ? ["the page"] : []
    for (const table of document.querySelectorAll(".md-typeset table"))
      for (let each = table; each.matches(wrappers); each = each.parentElement)
        if (isClipped(each)) {
          found.push(`table ${table.innerText.slice(0, 60)}`)
          break
        }
    return found
  },

  // The texts that the buttons of code blocks copy.
  copied() {
    return [...document.querySelectorAll(".md-code__button[data-md-type=copy]")].map(button => {
      const code = document.querySelector(button.dataset.clipboardTarget)
      return code.dataset.copy ?? code.innerText
    })
  },

  isIndexFetched: () => performance.getEntriesByType("resource").some(each => /\/search\.js(on)?$/.test(each.name)),

  isGameFetched: () => performance.getEntriesByType("resource").some(each => each.name.includes("/play/")),

  playHere: () => document.querySelector("button.play-here").click(),

  game: () => document.querySelector("iframe.game").contentDocument,

  // While the frame loads, its document has neither a body nor elements.
  isGameBegun: () => siteCheck.game()?.querySelector("body.begun #asked")?.innerText,

  gameText: () => siteCheck.game()?.body?.innerText.trim().slice(0, 300),

  search: () => [...document.querySelectorAll("body > div")].find(each => each.shadowRoot)?.shadowRoot,

  // The middle of the button that copies the first console session.
  copyButton() {
    const button = document.querySelector("code:has(.gp)").parentElement.querySelector("[data-md-type=copy]")
    button.scrollIntoView({ block: "center" })
    const { x, y, width, height } = button.getBoundingClientRect()
    return [x + width / 2, y + height / 2]
  },

  openSearch() {
    const button = document.querySelector(".md-search__button")
    button.focus()
    button.click()
  },

  type(query) {
    const input = siteCheck.search().querySelector("input")
    input.value = query
    input.dispatchEvent(new Event("input", { bubbles: true }))
  },

  // The address of the first page that a search lists; "" until the list matches the query.
  firstFound(query) {
    const first = siteCheck.search()?.querySelector("[role=option]")
    const marked = [...(first?.querySelectorAll("mark") ?? [])].map(each => each.innerText.toLowerCase())
    return marked.some(each => each.startsWith(query)) ? first.href : ""
  },
}
