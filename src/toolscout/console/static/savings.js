// Savings: tokens that were not sent and those that were, over time, by server and in money.

import { ask } from "./api.js";
import { Chart } from "./chart.js";
import { fill, h, paced } from "./dom.js";
import { money, short, whole } from "./format.js";
import { bar, empty, head, problemCard, skeleton } from "./parts.js";
import { address, go, route } from "./routes.js";

const PERIODS = [
  [24, "24 hours"],
  [168, "7 days"],
  [744, "31 days"],
];
const BY_DAY_HOURS = 168;
const DAY_HOURS = 24;

export const savings = {
  title: "Savings",
  mount: (root, context) => new Savings(root, context),
};

class Savings {
  constructor(root, context) {
    this.context = context;
    this.answer = null;
    this.chart = new Chart();
    this.period = h(
      "select",
      { "aria-label": "Period", onchange: () => this.change({ hours: this.period.value }) },
      PERIODS.map(([hours, label]) => h("option", { value: hours }, label)),
    );
    this.price = h("input", {
      type: "number",
      min: "0",
      step: "any",
      placeholder: "$ per million",
      "aria-label": "Dollars per million input tokens",
      onchange: () => this.change({ price: this.price.value }),
    });
    this.body = h("div", { class: "stack gap" }, skeleton(3, 110));
    fill(
      root,
      head(
        "Savings",
        h("p", {}, "Definitions left out, and what was sent instead."),
        this.period,
        this.price,
      ),
      this.body,
    );
    this.soon = paced(() => this.load(), 1_000);
  }

  update(params) {
    const hours = params.hours ?? String(PERIODS[0][0]);
    const isNew = hours !== this.hours;
    this.hours = hours;
    this.period.value = hours;
    this.price.value = params.price ?? "";
    if (isNew) this.load();
    else if (this.answer) this.show();
  }

  change(params) {
    go(address("savings", { ...route().params, ...params }), { replace: true });
  }

  overview() {
    if (this.answer && !this.answer.total.not_sent) this.show();
  }

  event(kind) {
    if (kind === "savings" || kind === "resync") this.soon();
  }

  async load() {
    try {
      this.answer = await ask("savings", { hours: this.hours });
      this.show();
    } catch (error) {
      fill(
        this.body,
        problemCard(error, () => this.load()),
      );
    }
  }

  show() {
    const { total, by_server: servers } = this.answer;
    const price = Number(this.price.value);
    if (!total.not_sent && !sent(total))
      return fill(this.body, h("div", { class: "card" }, this.nothing()));
    const points = periods(this.answer.points);
    const isOpen = this.body.querySelector("details")?.open ?? false;
    fill(
      this.body,
      figures(total, price),
      h(
        "section",
        { class: "card pad stack", "aria-labelledby": "chart-title" },
        h(
          "div",
          { class: "row" },
          h(
            "h2",
            { id: "chart-title" },
            points.length > 30 && this.hours > BY_DAY_HOURS ? "By day" : "Over time",
          ),
          legend(),
        ),
        this.chart.element,
        this.chart.readout,
        table(points, isOpen),
      ),
      byServer(servers, price),
    );
    this.chart.show(points);
  }

  nothing() {
    const isConsole = this.context.overview().host === "console";
    return empty(
      "savings",
      "Nothing to count yet",
      isConsole
        ? "This console has no gateway. A gateway counts the tokens that its clients receive:"
        : "The first bar appears as soon as a client lists or searches tools.",
      ...(isConsole ? [h("code", {}, "toolscout serve --http")] : []),
    );
  }
}

const sent = (tally) => tally.menu + tally.replies + tally.descriptions;

/** Return points for the chart; many hours are summed by day. */
function periods(points) {
  const isLong = points.length > BY_DAY_HOURS;
  const groups = isLong ? chunks(points, DAY_HOURS) : points.map((point) => [point]);
  return groups.map((group) => {
    const time = new Date(group[0].time);
    const sum = (count) => group.reduce((all, point) => all + count(point), 0);
    const day = time.toLocaleDateString([], { day: "numeric", month: "short" });
    const hour = time.toLocaleTimeString([], {
      hour: "2-digit",
      minute: "2-digit",
      hourCycle: "h23",
    });
    const label = isLong ? day : points.length > DAY_HOURS ? `${day} ${hour}` : hour;
    return {
      label,
      title: isLong ? day : `${day}, ${hour}`,
      not_sent: sum((p) => p.not_sent),
      sent: sum(sent),
      net: sum((p) => p.net),
    };
  });
}

function chunks(points, size) {
  const first = points.length % size;
  const rest = Array.from({ length: Math.floor(points.length / size) }, (_, i) =>
    points.slice(first + i * size, first + (i + 1) * size),
  );
  return first ? [points.slice(0, first), ...rest] : rest;
}

function figures(total, perMillion) {
  const price = (count) => (perMillion > 0 ? money((count * perMillion) / 1e6) : "");
  const rows = [
    ["Not sent", total.not_sent, "definitions left out"],
    [
      "Sent instead",
      sent(total),
      `toolscout's tools ${short(total.menu)}, replies ${short(total.replies)}, descriptions ${short(total.descriptions)}`,
    ],
    ["Net", total.net, total.net >= 0 ? "saved in total" : "lost in total"],
  ];
  return h(
    "div",
    { class: "figures" },
    rows.map(([name, count, label]) =>
      h(
        "div",
        { class: name === "Net" ? "card pad figure net" : "card pad figure" },
        h("h2", {}, name),
        h("p", { class: "big num" }, short(count), h("span", { class: "unit" }, " tokens")),
        h(
          "p",
          { class: "small soft" },
          perMillion > 0 ? h("strong", { class: "num" }, price(count), " · ") : null,
          label,
        ),
      ),
    ),
  );
}

function legend() {
  return h(
    "ul",
    { class: "row push legend small soft" },
    [
      ["spared", "not sent"],
      ["sent", "sent"],
      ["net", "net"],
    ].map(([kind, label]) =>
      h("li", {}, h("span", { class: `key ${kind}`, "aria-hidden": "true" }), label),
    ),
  );
}

function table(points, isOpen) {
  const filled = points.filter((point) => point.not_sent || point.sent);
  const details = h(
    "details",
    {},
    h("summary", {}, "The same as a table"),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tokens over time" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Time"),
            ["Not sent", "Sent", "Net"].map((name) =>
              h("th", { scope: "col", class: "num" }, name),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          filled.map((point) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, point.title),
              [point.not_sent, point.sent, point.net].map((count) =>
                h("td", { class: "num" }, whole(count)),
              ),
            ),
          ),
        ),
      ),
    ),
  );
  details.open = isOpen;
  return details;
}

function byServer(servers, price) {
  if (!servers.length) return null;
  const most = servers[0].not_sent || 1;
  return h(
    "section",
    { class: "card pad stack", "aria-labelledby": "by-server" },
    h("h2", { id: "by-server" }, "Not sent, by server"),
    h(
      "ul",
      { class: "by-server" },
      servers.map((one) =>
        h(
          "li",
          {},
          h("span", {}, one.server),
          h(
            "span",
            { class: "num soft small" },
            short(one.not_sent),
            price > 0 ? ` · ${money((one.not_sent * price) / 1e6)}` : "",
          ),
          bar(one.not_sent / most),
        ),
      ),
    ),
  );
}
