// Pages that are opened as files may not start workers, which the search of the site needs.
// This runs the code of a worker in a hidden frame instead. Pages from a web server keep workers.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      // As with a worker, each side gets a copy of a message, and later.
      inside.postMessage = (message) => {
        const data = structuredClone(message);
        setTimeout(() => {
          const event = new MessageEvent("message", { data });
          this.dispatchEvent(event);
          this.onmessage?.(event);
        });
      };
      inside.importScripts = (...names) =>
        names.reduce((earlier, name) => earlier.then(() => this.load(name)), Promise.resolve());
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        this.frame.contentDocument.body.append(script);
      });
    }

    postMessage(message) {
      const data = structuredClone(message);
      this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
