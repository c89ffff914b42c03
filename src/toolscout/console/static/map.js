// Map: tools placed by meaning and coloured by server, with a query and its hits.

import { ask } from "./api.js";
import { fill, h, icon, s } from "./dom.js";
import { plural } from "./format.js";
import { head, problemCard, toolLink } from "./parts.js";
import { look, outline, Plot } from "./plot.js";
import { address, go, route, withParams } from "./routes.js";

const STEP = 60;
const LEGEND_SHOWN = 32;

export const map = {
  title: "Map",
  mount: (root) => new MapPage(root),
};

class MapPage {
  constructor(root) {
    this.query = this.count = null;
    this.summary = h("p", {}, "Tools with similar meanings are close together.");
    this.input = h("input", {
      type: "search",
      placeholder: "Show a query on the map",
      "aria-label": "Show a query on the map",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () =>
        go(address("map", { ...route().params, q: this.input.value }), { replace: true }),
    });
    this.canvas = h("canvas", {
      class: "map-canvas",
      tabindex: "0",
      role: "application",
      "aria-label":
        "Map of the catalogue. Arrows move it, plus and minus zoom, 0 shows all of it. The hits are in the list next to it.",
    });
    this.tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.note = h(
      "div",
      { class: "map-note" },
      h(
        "p",
        { class: "soft" },
        "Placing the tools by meaning. A large catalogue takes a while the first time.",
      ),
    );
    this.hits = h("div", { role: "status" });
    this.legend = h("ul", { class: "map-legend" });
    const tool = (label, work, name) =>
      h("button", { type: "button", class: "icon", "aria-label": name, onclick: work }, label);
    this.plot = new Plot(this.canvas, {
      hover: (i, x, y) => this.hover(i, x, y),
      open: (i) => go(withParams({ tool: this.data.tools[i] })),
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    fill(
      root,
      head("Map", this.summary),
      h(
        "div",
        { class: "map-grid" },
        h(
          "div",
          { class: "stack" },
          this.input,
          h(
            "div",
            { class: "card map-box" },
            this.canvas,
            this.note,
            this.tip,
            h(
              "div",
              { class: "map-tools" },
              tool("+", () => this.plot.zoom(1.5), "Zoom in"),
              tool("−", () => this.plot.zoom(1 / 1.5), "Zoom out"),
              tool(icon("fit", 16), () => this.plot.home(), "Show all of it"),
            ),
          ),
        ),
        h(
          "aside",
          { class: "stack", "aria-label": "Hits and servers" },
          this.hits,
          h("section", { class: "card pad stack" }, h("h2", {}, "Servers"), this.legend),
        ),
      ),
    );
    this.loading = this.load();
  }

  update(params) {
    if (document.activeElement !== this.input) this.input.value = params.q ?? "";
    if ((params.q ?? "") !== this.query) {
      this.query = params.q ?? "";
      this.loading.then(() => this.ask());
    }
  }

  /** Draw the map again when the catalogue has changed. */
  overview({ tools, resources, prompts }) {
    const count = tools + resources + prompts;
    if (this.count !== null && this.count !== count)
      this.loading = this.load().then(() => this.ask());
    this.count = count;
  }

  recolour() {
    this.plot.draw();
  }

  focus(isAsked = false) {
    if (!isAsked) return false;
    this.input.focus();
    this.input.select();
    return true;
  }

  async load() {
    try {
      this.data = await ask("map");
      this.note.hidden = this.data.tools.length > 0;
      fill(this.note, h("p", { class: "soft" }, "No tools to place yet."));
      this.showLegend();
      this.plot.show(this.data, this.places);
      fill(
        this.summary,
        `${plural(this.data.tools.length, "tool")} on ${plural(this.data.servers.length, "server")}. Tools with similar meanings are close together.`,
      );
    } catch (error) {
      this.note.hidden = false;
      fill(
        this.note,
        problemCard(error, () => {
          this.loading = this.load();
        }),
      );
    }
  }

  showLegend() {
    const { servers, server_of: owners } = this.data;
    const counts = servers.map(() => 0);
    for (const owner of owners) counts[owner] += 1;
    const order = servers
      .map((_, i) => i)
      .sort((a, b) => counts[b] - counts[a] || servers[a].localeCompare(servers[b]));
    this.places = [];
    order.forEach((server, place) => {
      this.places[server] = place;
    });
    const rest = order.length - LEGEND_SHOWN;
    fill(
      this.legend,
      order.slice(0, LEGEND_SHOWN).map((server) => this.legendRow(server, counts[server])),
      rest > 0 ? h("li", { class: "soft small" }, `and ${rest} more, in grey`) : null,
    );
  }

  legendRow(server, count) {
    const { hue, shape } = look(this.places[server]);
    const button = h(
      "button",
      {
        type: "button",
        class: "quiet small",
        "aria-pressed": "false",
        onclick: () => this.brighten(server, button),
      },
      swatch(shape, hue),
      h("span", { class: "facet-name" }, this.data.servers[server]),
      h("span", { class: "num" }, String(count)),
    );
    return h("li", {}, button);
  }

  brighten(server, button) {
    const isOn = this.plot.bright === server;
    for (const other of this.legend.querySelectorAll("button"))
      other.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", String(!isOn));
    this.plot.bright = isOn ? null : server;
    this.plot.draw();
  }

  async ask() {
    this.asking?.abort();
    this.asking = new AbortController();
    if (!this.data || !this.query.trim()) return this.showQuery(null);
    try {
      this.showQuery(await ask("map/point", { q: this.query }, { signal: this.asking.signal }));
    } catch (error) {
      if (error.name !== "AbortError") fill(this.hits, problemCard(error));
    }
  }

  showQuery(found) {
    this.plot.query = found;
    this.plot.draw();
    if (!found) return fill(this.hits);
    const rows = found.hits.map((i) =>
      h(
        "li",
        {},
        h(
          "span",
          {
            onpointerenter: () => this.plot.mark(i),
            onpointerleave: () => this.plot.mark(-1),
            onfocusin: () => this.plot.mark(i),
            onfocusout: () => this.plot.mark(-1),
          },
          toolLink({ name: this.data.tools[i] }),
        ),
      ),
    );
    fill(
      this.hits,
      h(
        "section",
        { class: "card pad stack" },
        h("h2", {}, rows.length ? plural(rows.length, "hit") : "No hits"),
        h("ol", { class: "map-hits" }, rows),
      ),
    );
  }

  hover(i, x, y) {
    this.tip.hidden = i < 0;
    this.canvas.classList.toggle("points", i >= 0);
    if (i < 0) return;
    this.tip.textContent = this.data.tools[i].replace("__", " / ");
    const left = Math.max(
      4,
      Math.min(x - this.tip.offsetWidth / 2, this.plot.width - this.tip.offsetWidth - 4),
    );
    this.tip.style.transform = `translate(${left}px, ${y > 44 ? y - 40 : y + 16}px)`;
  }

  key(event) {
    const moves = {
      ArrowLeft: () => this.plot.pan(STEP, 0),
      ArrowRight: () => this.plot.pan(-STEP, 0),
      ArrowUp: () => this.plot.pan(0, STEP),
      ArrowDown: () => this.plot.pan(0, -STEP),
      "+": () => this.plot.zoom(1.5),
      "=": () => this.plot.zoom(1.5),
      "-": () => this.plot.zoom(1 / 1.5),
      0: () => this.plot.home(),
    };
    if (!(event.key in moves) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    moves[event.key]();
  }
}

function swatch(shape, hue) {
  const points = [];
  outline(
    {
      rect: (x, y, w, t) => points.push(`M${x} ${y}h${w}v${t}h${-w}Z`),
      moveTo: (x, y) => points.push(`M${x} ${y}`),
      lineTo: (x, y) => points.push(`L${x} ${y}`),
      arc: () => points.push("A5 5 0 1 1 3 8A5 5 0 0 1 13 8"),
      closePath: () => points.push("Z"),
    },
    shape,
    8,
    8,
    5,
  );
  return s(
    "svg",
    { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
    s("path", { d: points.join(""), fill: hue }),
  );
}
