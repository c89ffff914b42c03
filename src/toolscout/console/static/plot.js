// Points on a canvas, with zoom and pan. Servers differ in colour and shape, so that
// neither is needed alone.

import { colours } from "./themes.js";

const HUES = [
  "#0072b2",
  "#d55e00",
  "#009e73",
  "#cc79a7",
  "#e69f00",
  "#56b4e9",
  "#8a6d3b",
  "#7f5fc9",
];
const SHAPES = ["circle", "square", "triangle", "diamond"];
const ZOOM_MOST = 60;
const REACH = 14;
const EDGE = 28;

/** Return colour and shape of a server by its rank in size. */
export function look(place) {
  return {
    hue: HUES[place % HUES.length],
    shape: SHAPES[Math.floor(place / HUES.length) % SHAPES.length],
    isRare: place >= HUES.length * SHAPES.length,
  };
}

/** Add the outline of a shape to a path. */
export function outline(path, shape, x, y, r) {
  if (shape === "square") path.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
  else if (shape === "circle") {
    path.moveTo(x + r, y);
    path.arc(x, y, r, 0, 7);
  } else {
    const isTriangle = shape === "triangle";
    path.moveTo(x, y - r * 1.2);
    path.lineTo(x + r * 1.15, y + (isTriangle ? r * 0.9 : 0));
    if (!isTriangle) path.lineTo(x, y + r * 1.2);
    path.lineTo(x - r * 1.15, y + (isTriangle ? r * 0.9 : 0));
    path.closePath();
  }
}

export class Plot {
  /** `hover(index, x, y)` gets the point under the pointer, `open(index)` the one that is opened. */
  constructor(canvas, { hover, open }) {
    Object.assign(this, { canvas, hover, open });
    this.data = null;
    this.places = [];
    this.bright = null;
    this.query = null;
    this.near = -1;
    this.pointers = new Map();
    this.home();
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(canvas);
    this.listen();
  }

  show(data, places) {
    [this.data, this.places] = [data, places];
    const bounds = (values) =>
      values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    [this.xs, this.ys] = [bounds(data.x), bounds(data.y)];
    this.resize();
  }

  home() {
    this.view = { zoom: 1, x: 0, y: 0 };
    this.draw();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const ratio = devicePixelRatio || 1;
    [this.width, this.height] = [width, height];
    [this.canvas.width, this.canvas.height] = [width * ratio, height * ratio];
    this.draw();
  }

  /** Return the canvas position of a point of the map. */
  at(x, y) {
    const fit = (v, [a, b], size) => EDGE + ((v - a) / (b - a || 1)) * (size - 2 * EDGE);
    const { zoom, x: left, y: top } = this.view;
    return [fit(x, this.xs, this.width) * zoom + left, fit(y, this.ys, this.height) * zoom + top];
  }

  draw() {
    this.waits ||= requestAnimationFrame(() => {
      this.waits = 0;
      this.paint();
    });
  }

  paint() {
    if (!this.data || !this.width) return;
    const pen = this.canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    const [ink, soft, surface, accent] = colours("ink", "soft", "surface", "accent");
    this.paintPoints(pen, soft);
    if (this.near >= 0) this.ring(pen, this.near, ink, 3);
    if (this.query) this.paintQuery(pen, { ink, surface, accent });
  }

  radius() {
    const base = this.data.x.length > 5000 ? 1.5 : this.data.x.length > 1000 ? 2.4 : 4;
    return Math.min(9, base * Math.sqrt(this.view.zoom));
  }

  paintPoints(pen, soft) {
    const { x, y, server_of: owners } = this.data;
    const r = this.radius();
    const paths = new Map();
    for (let i = 0; i < x.length; i += 1) {
      const [px, py] = this.at(x[i], y[i]);
      if (px < -10 || py < -10 || px > this.width + 10 || py > this.height + 10) continue;
      const owner = owners[i];
      if (!paths.has(owner)) paths.set(owner, new Path2D());
      outline(paths.get(owner), look(this.places[owner]).shape, px, py, r);
    }
    const isFaint = this.query?.hits.length || this.bright !== null;
    for (const [owner, path] of paths) {
      const { hue, isRare } = look(this.places[owner]);
      pen.globalAlpha =
        this.bright === owner ? 1 : this.bright !== null ? 0.12 : isFaint ? 0.4 : 0.85;
      pen.fillStyle = isRare ? soft : hue;
      pen.fill(path);
    }
    pen.globalAlpha = 1;
  }

  paintQuery(pen, { ink, surface, accent }) {
    const [qx, qy] = this.at(this.query.x, this.query.y);
    pen.strokeStyle = accent;
    pen.lineWidth = 1.5;
    for (const i of this.query.hits) {
      const [x, y] = this.at(this.data.x[i], this.data.y[i]);
      pen.globalAlpha = 0.55;
      pen.beginPath();
      pen.moveTo(qx, qy);
      pen.lineTo(x, y);
      pen.stroke();
    }
    pen.globalAlpha = 1;
    this.query.hits.forEach((i) => this.paintHit(pen, i));
    this.star(pen, qx, qy, ink, surface);
    this.paintNames(pen, ink, surface);
  }

  paintHit(pen, i) {
    const [x, y] = this.at(this.data.x[i], this.data.y[i]);
    const { hue, shape } = look(this.places[this.data.server_of[i]]);
    const path = new Path2D();
    outline(path, shape, x, y, Math.max(6, this.radius() + 2));
    pen.fillStyle = hue;
    pen.fill(path);
  }

  star(pen, x, y, ink, surface) {
    const path = new Path2D();
    for (let i = 0; i < 10; i += 1) {
      const r = i % 2 ? 4.5 : 11;
      path[i ? "lineTo" : "moveTo"](
        x + r * Math.sin((i * Math.PI) / 5),
        y - r * Math.cos((i * Math.PI) / 5),
      );
    }
    path.closePath();
    pen.lineWidth = 4;
    pen.strokeStyle = surface;
    pen.stroke(path);
    pen.fillStyle = ink;
    pen.fill(path);
  }

  /** Write names next to the hits, best first, where there is room. */
  paintNames(pen, ink, surface) {
    const taken = [];
    pen.font = "600 12px Inter, system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.lineWidth = 4;
    pen.lineJoin = "round";
    this.query.hits.forEach((i, rank) => {
      const text = `${rank + 1} ${this.data.tools[i].replace("__", "/")}`;
      const box = this.room(
        this.at(this.data.x[i], this.data.y[i]),
        pen.measureText(text).width,
        taken,
      );
      if (!box) return;
      taken.push(box);
      pen.strokeStyle = surface;
      pen.strokeText(text, box[0], box[1] + 8);
      pen.fillStyle = ink;
      pen.fillText(text, box[0], box[1] + 8);
    });
  }

  /** Return a free box next to a position, or nothing. */
  room([x, y], width, taken) {
    for (const down of [0, 17, -17, 34, -34]) {
      for (const left of [x + 14, x - 14 - width]) {
        const box = [left, y + down - 8, left + width, y + down + 8];
        const isInside = left > 2 && box[2] < this.width - 2 && box[1] > 0 && box[3] < this.height;
        if (
          isInside &&
          !taken.some((o) => box[0] < o[2] && box[2] > o[0] && box[1] < o[3] && box[3] > o[1])
        )
          return box;
      }
    }
    return null;
  }

  ring(pen, i, colour, gap) {
    const [x, y] = this.at(this.data.x[i], this.data.y[i]);
    pen.beginPath();
    pen.arc(x, y, Math.max(6, this.radius()) + gap, 0, 7);
    pen.lineWidth = 2;
    pen.strokeStyle = colour;
    pen.stroke();
  }

  /** Return the point nearest to a canvas position, within reach. */
  find(px, py) {
    let [best, least] = [-1, REACH ** 2];
    for (let i = 0; i < (this.data?.x.length ?? 0); i += 1) {
      const [x, y] = this.at(this.data.x[i], this.data.y[i]);
      const far = (x - px) ** 2 + (y - py) ** 2;
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }

  mark(i) {
    this.near = i;
    const [x, y] = i >= 0 ? this.at(this.data.x[i], this.data.y[i]) : [0, 0];
    this.hover(i, x, y);
    this.draw();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const next = Math.max(1, Math.min(ZOOM_MOST, this.view.zoom * factor));
    const real = next / this.view.zoom;
    this.view = this.kept({
      zoom: next,
      x: x - (x - this.view.x) * real,
      y: y - (y - this.view.y) * real,
    });
    this.draw();
  }

  pan(dx, dy) {
    this.view = this.kept({ ...this.view, x: this.view.x + dx, y: this.view.y + dy });
    this.draw();
  }

  /** Return a view in which the map stays in sight. */
  kept({ zoom, x, y }) {
    const within = (value, size) => Math.min(0, Math.max(size * (1 - zoom), value));
    return { zoom, x: within(x, this.width), y: within(y, this.height) };
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    canvas.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, event);
      this.moved = 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.mark(-1));
  }

  drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.mark(this.find(event.offsetX, event.offsetY));
    this.pointers.set(event.pointerId, event);
    const [dx, dy] = [event.offsetX - before.offsetX, event.offsetY - before.offsetY];
    this.moved += Math.abs(dx) + Math.abs(dy);
    const other = [...this.pointers.values()].find((one) => one.pointerId !== event.pointerId);
    if (!other) return this.pan(dx, dy);
    const gap = (one) => Math.hypot(one.offsetX - other.offsetX, one.offsetY - other.offsetY) || 1;
    this.zoom(
      gap(event) / gap(before),
      (event.offsetX + other.offsetX) / 2,
      (event.offsetY + other.offsetY) / 2,
    );
  }

  release(event) {
    this.pointers.delete(event.pointerId);
    if (this.moved > 6) return;
    const i = this.find(event.offsetX, event.offsetY);
    const isSure = event.pointerType !== "touch" || i === this.near;
    this.mark(i);
    // A first tap names a tool, a second one opens it.
    if (i >= 0 && isSure) this.open(i);
  }
}
