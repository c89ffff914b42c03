// Catalogue: all tools by server, kind and effect, with what each costs.

import { ask } from "./api.js";
import { fill, h, paced } from "./dom.js";
import { plural, short, tokens, whole, words } from "./format.js";
import { bar, badge, effectBadge, empty, head, problemCard, skeleton, toolLink } from "./parts.js";
import { address, go, route } from "./routes.js";
import { VirtualList } from "./virtual.js";

const FACETS = { server: "Servers", kind: "Kinds", effect: "Effects" };
const LISTS = { server: "servers", kind: "kinds", effect: "effects" };
const NAMES_SHOWN = 120;

export const catalogue = {
  title: "Catalogue",
  mount: (root) => new Catalogue(root),
};

class Catalogue {
  constructor(root) {
    this.params = {};
    this.facets = null;
    this.serverFilter = "";
    this.summary = h("p", {});
    this.input = h("input", {
      type: "search",
      placeholder: "Filter by words",
      "aria-label": "Filter the tools by words",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.change({ q: this.input.value }),
    });
    this.sort = h(
      "select",
      { "aria-label": "Order", onchange: () => this.change({ sort: this.sort.value }) },
      h("option", { value: "" }, "By name"),
      h("option", { value: "tokens" }, "Dearest first"),
    );
    this.filters = h("div", { class: "facets stack" }, skeleton(6, 26));
    this.chosen = h("div", { class: "row chosen" });
    this.status = h("p", { class: "soft small", role: "status" });
    this.list = new VirtualList({
      height: 74,
      load: (offset, limit) => this.load(offset, limit),
      row: toolRow,
      none: () =>
        empty(
          "catalogue",
          "No tool passes these filters",
          "Remove a filter, or try other words.",
        ),
    });
    this.box = h(
      "details",
      { class: "facet-box" },
      h("summary", {}, "Servers, kinds and effects"),
      this.filters,
    );
    this.box.open = matchMedia("(min-width: 900px)").matches;
    fill(
      root,
      head("Catalogue", this.summary),
      h(
        "div",
        { class: "with-facets" },
        h("aside", { "aria-label": "Filters" }, this.box),
        h(
          "div",
          { class: "stack" },
          h("div", { class: "row filter-row" }, this.input, this.sort),
          h("div", { class: "row list-text" }, this.status, this.chosen),
          this.list.element,
        ),
      ),
    );
    this.reload = paced(() => {
      this.loadFacets();
      this.list.refresh();
    }, 600);
    this.loadFacets();
  }

  update(params) {
    if (document.activeElement !== this.input) this.input.value = params.q ?? "";
    this.sort.value = params.sort ?? "";
    const { tool: _, ...asked } = params;
    if (JSON.stringify(asked) === JSON.stringify(this.asked)) return;
    this.asked = asked;
    this.list.reset();
    this.showFacets();
  }

  change(params) {
    go(address("catalogue", { ...route().params, ...params }), { replace: true });
  }

  event(kind) {
    if (kind === "overview" || kind === "resync") this.reload();
  }

  focus(isAsked = false) {
    if (!isAsked) return false;
    this.input.focus();
    this.input.select();
    return true;
  }

  leave() {
    this.list.leave();
  }

  async load(offset, limit) {
    const { server, kind, effect, q, sort } = this.asked;
    const page = await ask("tools", { server, kind, effect, q, sort, offset, limit });
    fill(this.status, `${whole(page.total)} shown, ${sort ? "most tokens first" : "by name"}`);
    return { total: page.total, rows: page.tools };
  }

  async loadFacets() {
    try {
      this.facets = await ask("facets");
      this.showFacets();
    } catch (error) {
      fill(
        this.filters,
        problemCard(error, () => this.loadFacets()),
      );
    }
  }

  showFacets() {
    if (!this.facets || !this.asked) return;
    const { servers, kinds, estimated } = this.facets;
    const sum = servers.reduce((all, one) => all + one.tokens, 0);
    const count = servers.reduce((all, one) => all + one.tools, 0);
    fill(
      this.summary,
      `${whole(count)} ${kinds.length > 1 ? "entries" : "tools"} on ${plural(servers.length, "server")}. All definitions together cost ${estimated ? "about " : ""}${tokens(sum)}.`,
    );
    fill(
      this.filters,
      Object.keys(FACETS).map((key) => this.group(key)),
    );
    fill(
      this.chosen,
      Object.keys(FACETS)
        .filter((key) => this.asked[key])
        .map((key) =>
          h(
            "a",
            {
              class: "chip",
              href: this.link(key, ""),
              "aria-label": `Remove the filter ${this.asked[key]}`,
            },
            `${key}: ${words(this.asked[key])} ×`,
          ),
        ),
    );
  }

  group(key) {
    const all = [...this.facets[LISTS[key]]].sort((a, b) => b.tokens - a.tokens);
    const list = h("ul", { class: "facet-list" });
    const show = () => fill(list, this.names(key, all));
    const filter =
      all.length > 12 && key === "server"
        ? h("input", {
            type: "search",
            placeholder: `Find among ${all.length}`,
            "aria-label": "Find a server",
            value: this.serverFilter,
            oninput: (event) => {
              this.serverFilter = event.target.value;
              show();
            },
          })
        : null;
    show();
    return h("section", { class: "stack facet" }, h("h2", {}, FACETS[key]), filter, list);
  }

  names(key, all) {
    const wanted =
      key === "server" && this.serverFilter
        ? all.filter((one) => one.name.toLowerCase().includes(this.serverFilter.toLowerCase()))
        : all;
    const most = Math.max(...all.map((one) => one.tokens), 1);
    const rows = wanted.slice(0, NAMES_SHOWN).map((one) => {
      const isChosen = this.asked[key] === one.name;
      return h(
        "li",
        {},
        h(
          "a",
          {
            href: this.link(key, isChosen ? "" : one.name),
            "aria-current": isChosen ? "true" : null,
            title: `${plural(one.tools, "tool")}, ${tokens(one.tokens)}`,
          },
          h("span", { class: "facet-name" }, words(one.name)),
          h("span", { class: "num soft" }, `${whole(one.tools)} · ${short(one.tokens)}`),
          bar(one.tokens / most),
        ),
      );
    });
    return wanted.length > NAMES_SHOWN
      ? [...rows, h("li", { class: "soft small" }, `and ${wanted.length - NAMES_SHOWN} more`)]
      : rows;
  }

  link(key, value) {
    return address("catalogue", { ...this.asked, [key]: value });
  }
}

function toolRow(tool) {
  return [
    h(
      "div",
      { class: "entry-head" },
      toolLink(tool),
      h(
        "span",
        { class: "hit-facts" },
        tool.findings ? badge(plural(tool.findings, "finding"), "warning") : null,
        tool.kind !== "tool" ? badge(tool.kind, "") : null,
        effectBadge(tool.effect),
        h(
          "span",
          { class: "small soft num" },
          short(tool.tokens),
          h("span", { class: "wide-only" }, " tokens"),
        ),
      ),
    ),
    h("p", { class: "entry-text soft" }, tool.sentence || tool.signature),
  ];
}
