// Tokens over time as SVG: not sent above the line, sent below, net as a curve. Read with arrows too.

import { fill, h, s } from "./dom.js";
import { short, whole } from "./format.js";

const HEIGHT = 260;
const EDGE = { left: 52, right: 8, top: 14, bottom: 28 };
const LINES = 4;
const LABEL_WIDTH = 84;

export class Chart {
  constructor() {
    this.points = [];
    this.at = null;
    this.svg = s("svg", { class: "chart", height: HEIGHT, "aria-hidden": "true" });
    this.readout = h("p", { class: "readout small num", role: "status" });
    this.element = h(
      "div",
      {
        class: "chart-box",
        tabindex: "0",
        role: "group",
        "aria-label": "Chart of tokens over time. The left and right arrows step through it.",
      },
      this.svg,
    );
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.choose(null));
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
  }

  /** Show points `{label, not_sent, sent, net}`. */
  show(points) {
    this.points = points;
    this.at = null;
    this.draw();
    this.tell();
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width || !this.points.length) return fill(this.svg);
    const { high, low, step } = scale(this.points);
    const y = (value) =>
      EDGE.top + ((high - value) / (high - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
    this.slot = (width - EDGE.left - EDGE.right) / this.points.length;
    const x = (i) => EDGE.left + i * this.slot;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.cursor = s("rect", {
      class: "cursor",
      y: EDGE.top,
      width: this.slot,
      height: HEIGHT - EDGE.top - EDGE.bottom,
      visibility: "hidden",
    });
    fill(
      this.svg,
      grid(low, high, step, y, width),
      this.cursor,
      this.points.map((point, i) => this.bars(point, x(i), y)),
      this.curve(x, y),
      this.labels(x),
    );
    this.choose(this.at);
  }

  bars(point, x, y) {
    const gap = Math.min(4, this.slot * 0.2);
    const rect = (value, kind) =>
      value
        ? s("rect", {
            class: kind,
            x: x + gap / 2,
            width: Math.max(1, this.slot - gap),
            y: Math.min(y(0), y(value)),
            height: Math.max(1, Math.abs(y(value) - y(0))),
            rx: Math.min(3, this.slot / 4),
          })
        : null;
    return [rect(point.not_sent, "spared"), rect(-point.sent, "sent")];
  }

  curve(x, y) {
    return runs(this.points).map(({ from, to }) => {
      // A single time gets a line as wide as its bar; a curve needs two.
      const middle = (i) => x(i) + this.slot / 2;
      const ends =
        from === to
          ? [
              [x(from), from],
              [x(from) + this.slot, from],
            ]
          : Array.from({ length: to - from + 1 }, (_, n) => [middle(from + n), from + n]);
      return s("polyline", {
        class: "net",
        points: ends
          .map(([at, i]) => `${at.toFixed(1)},${y(this.points[i].net).toFixed(1)}`)
          .join(" "),
      });
    });
  }

  labels(x) {
    const every = Math.max(1, Math.ceil(LABEL_WIDTH / this.slot));
    return this.points.map((point, i) =>
      i % every === 0 ? s("text", { x: x(i) + 1, y: HEIGHT - 8 }, point.label) : null,
    );
  }

  point(event) {
    const i = Math.floor((event.offsetX - EDGE.left) / this.slot);
    this.choose(i >= 0 && i < this.points.length ? i : null);
  }

  key(event) {
    const last = this.points.length - 1;
    const moves = {
      ArrowRight: (this.at ?? -1) + 1,
      ArrowLeft: (this.at ?? last + 1) - 1,
      Home: 0,
      End: last,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.choose(Math.max(0, Math.min(last, moves[event.key])));
  }

  choose(i) {
    this.at = i;
    if (i !== null) this.cursor?.setAttribute("x", EDGE.left + i * this.slot);
    this.cursor?.setAttribute("visibility", i === null ? "hidden" : "visible");
    this.tell();
  }

  tell() {
    const point = this.points[this.at];
    fill(
      this.readout,
      point
        ? `${point.title}: ${whole(point.not_sent)} not sent, ${whole(point.sent)} sent, ${whole(point.net)} net`
        : "Point at the chart, or focus it and use ← and →.",
    );
  }
}

/** Return the stretches of time in which something happened. */
function runs(points) {
  const found = [];
  points.forEach((point, i) => {
    if (!point.not_sent && !point.sent) return;
    if (found.at(-1)?.to === i - 1) found.at(-1).to = i;
    else found.push({ from: i, to: i });
  });
  return found;
}

/** Return round ends and steps that hold all values. */
function scale(points) {
  const most = Math.max(1, ...points.map((point) => Math.max(point.not_sent, point.net)));
  const least = Math.min(0, ...points.map((point) => Math.min(-point.sent, point.net)));
  const step = roundUp((most - least) / LINES);
  return { high: Math.ceil(most / step) * step, low: Math.floor(least / step) * step, step };
}

function roundUp(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((one) => one >= value);
}

function grid(low, high, step, y, width) {
  const values = Array.from(
    { length: Math.round((high - low) / step) + 1 },
    (_, i) => low + i * step,
  );
  return values.map((value) => [
    s("line", {
      class: Math.abs(value) < step / 2 ? "zero" : "rule",
      x1: EDGE.left,
      x2: width - EDGE.right,
      y1: y(value),
      y2: y(value),
    }),
    s("text", { class: "end", x: EDGE.left - 8, y: y(value) + 4 }, short(Math.round(value))),
  ]);
}
