// A list of any length: only visible rows exist, and pages are fetched before they are needed.

import { fill, h } from "./dom.js";
import { problemCard } from "./parts.js";

const PAGE = 100;
const AROUND = 6;
const STEPS = {
  ArrowDown: 1,
  ArrowUp: -1,
  PageDown: 10,
  PageUp: -10,
  Home: -Infinity,
  End: Infinity,
};

export class VirtualList {
  /** `load(offset, limit)` gives `{total, rows}`, `row(value)` the content of one row. */
  constructor({ height, load, row, none }) {
    Object.assign(this, { height, load, row, none });
    this.space = h("ul", { class: "virtual-space", role: "list" });
    this.element = h("div", { class: "virtual card", "aria-busy": "true" }, this.space);
    this.element.addEventListener("keydown", (event) => this.move(event));
    this.onscroll = () => this.draw();
    addEventListener("scroll", this.onscroll, { passive: true });
    addEventListener("resize", this.onscroll);
    this.shown = new Map();
    this.start();
  }

  start() {
    this.pages = new Map();
    this.turn = (this.turn ?? 0) + 1;
    this.total = null;
    this.wanted = null;
  }

  /** Start again at the top. The old rows stay until the new ones arrive. */
  reset() {
    this.start();
    this.element.setAttribute("aria-busy", "true");
    if (this.element.getBoundingClientRect().top < 0) scrollTo(0, 0);
    this.fetch(0, true);
  }

  /** Fetch the visible rows again, without scrolling. */
  async refresh() {
    const page = Math.floor(this.range()[0] / PAGE);
    const known = JSON.stringify([this.total, this.pages.get(page)]);
    const { turn } = this;
    const { total, rows } = await this.load(page * PAGE, PAGE).catch(() => ({}));
    // Unchanged rows stay, and so does the focus in them.
    if (turn !== this.turn || !rows || JSON.stringify([total, rows]) === known) return;
    this.pages = new Map([[page, rows]]);
    this.turn += 1;
    this.total = total;
    const focused = document.activeElement?.closest?.("[data-number]");
    if (focused && this.space.contains(focused))
      this.wanted = Math.min(total - 1, Number(focused.dataset.number));
    this.clear();
    this.draw();
  }

  leave() {
    removeEventListener("scroll", this.onscroll);
    removeEventListener("resize", this.onscroll);
  }

  async fetch(page, isFresh = false) {
    if (this.pages.has(page)) return;
    const { turn } = this;
    this.pages.set(page, null);
    try {
      const { total, rows } = await this.load(page * PAGE, PAGE);
      if (turn !== this.turn) return;
      this.pages.set(page, rows);
      this.total = total;
      if (isFresh) this.clear();
      this.draw();
    } catch (error) {
      if (turn === this.turn) this.fail(error);
    }
  }

  clear() {
    this.element.removeAttribute("aria-busy");
    this.shown.clear();
    fill(this.space);
    if (this.total) fill(this.element, this.space);
    else fill(this.element, this.none());
    this.space.style.height = `${this.total * this.height}px`;
  }

  fail(error) {
    this.pages.clear();
    this.element.removeAttribute("aria-busy");
    fill(
      this.element,
      problemCard(error, () => {
        fill(this.element, this.space);
        this.reset();
      }),
    );
  }

  /** Return the numbers of the first visible row and of the one after the last. */
  range() {
    const top = this.space.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / this.height) - AROUND);
    return [
      first,
      Math.min(this.total ?? 0, first + Math.ceil(innerHeight / this.height) + 2 * AROUND),
    ];
  }

  draw() {
    if (!this.total) return;
    const [first, end] = this.range();
    for (const [i, element] of this.shown) {
      const isFocused = element.contains(document.activeElement);
      if ((i < first || i >= end) && !isFocused) {
        element.remove();
        this.shown.delete(i);
      }
    }
    for (let i = first; i < end; i += 1) this.place(i);
    if (this.wanted !== null) this.focus(this.wanted);
  }

  place(i) {
    const value = this.pages.get(Math.floor(i / PAGE))?.[i % PAGE];
    if (value === undefined) this.fetch(Math.floor(i / PAGE));
    const known = this.shown.get(i);
    if (known && (!value || !known.classList.contains("waits"))) return;
    const style = { transform: `translateY(${i * this.height}px)`, height: `${this.height}px` };
    const element = h(
      "li",
      {
        class: value ? "entry" : "entry waits",
        "aria-setsize": this.total,
        "aria-posinset": i + 1,
        style,
      },
      value ? this.row(value) : h("div", { class: "skeleton" }),
    );
    element.dataset.number = i;
    if (known) known.replaceWith(element);
    else this.insert(element, i);
    this.shown.set(i, element);
  }

  /** Keep the rows in reading order for the Tab key. */
  insert(element, i) {
    const after = [...this.space.children].find((child) => Number(child.dataset.number) > i);
    this.space.insertBefore(element, after ?? null);
  }

  move(event) {
    const row = event.target.closest("[data-number]");
    if (!row || !(event.key in STEPS)) return;
    event.preventDefault();
    this.focus(
      Math.max(0, Math.min(this.total - 1, Number(row.dataset.number) + STEPS[event.key])),
    );
  }

  focus(i) {
    const link = this.shown.get(i)?.querySelector("a");
    if (!link) {
      const isOutside = this.wanted !== i;
      this.wanted = i;
      if (isOutside)
        scrollTo(
          0,
          scrollY + this.space.getBoundingClientRect().top + i * this.height - innerHeight / 2,
        );
      return;
    }
    this.wanted = null;
    link.focus({ preventScroll: true });
    this.shown.get(i).scrollIntoView({ block: "nearest" });
  }
}
