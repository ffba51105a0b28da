// Runs before the script of the theme, whose search fetches its index with every page and needs a server.

// Fetch the index when a pointer or the focus reaches the search, or when one of its keys is pressed.
{
  const { open, send } = XMLHttpRequest.prototype
  const about = new Promise(resolve => {
    const search = ".md-search, [for=__search], [data-search]"
    for (const type of ["focusin", "pointerover", "click"])
      addEventListener(type, event => event.target.closest?.(search) && resolve(), true)
    addEventListener("keydown", event => "/fsk".includes(event.key) && resolve(), true)
  })
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    this.isIndex = /\/search(_index)?\.json$/.test(url)
    return open.call(this, method, url, ...rest)
  }
  XMLHttpRequest.prototype.send = function (body) {
    if (this.isIndex) about.then(() => send.call(this, body))
    else send.call(this, body)
  }
}

// Browsers refuse to run workers from files: run the script in a hidden frame.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.title = "search"
      this.frame.srcdoc = `<script src="${url}"></` + "script>"
      this.window = new Promise(resolve => {
        this.frame.onload = () => resolve(this.frame.contentWindow)
      })
      document.body.append(this.frame)
    }
    async postMessage(data) {
      const inner = await this.window
      inner.postMessage = answer => this.onmessage?.({ data: answer })
      inner.dispatchEvent(new MessageEvent("message", { data }))
    }
    terminate() {
      this.frame.remove()
    }
  }
