// Search in pages that are opened from disk: browsers start no Worker there, so its script runs in a hidden frame.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.title = "search"
      this.ready = new Promise((resolve) => {
        frame.addEventListener("load", () => {
          const script = frame.contentDocument.createElement("script")
          frame.contentWindow.postMessage = (data) => {
            const event = new MessageEvent("message", { data })
            this.dispatchEvent(event)
            if (this.onmessage) this.onmessage(event)
          }
          script.src = url
          script.addEventListener("load", () => resolve(frame.contentWindow))
          frame.contentDocument.body.append(script)
        }, { once: true })
      })
      frame.srcdoc = "<!doctype html><title>search</title>"
      const place = () => document.body.append(frame)
      document.body ? place() : addEventListener("DOMContentLoaded", place)
    }
    postMessage(data) {
      this.ready.then((worker) => {
        const event = new worker.MessageEvent("message", { data })
        worker.dispatchEvent(event)
      })
    }
    terminate() {}
  }
