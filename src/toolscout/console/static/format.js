// Numbers and times as people read them.

import { h } from "./dom.js";

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const AGO = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const STEPS = [
  ["second", 60],
  ["minute", 60],
  ["hour", 24],
  ["day", Infinity],
];

export const whole = (number) => WHOLE.format(number ?? 0);
export const short = (number) => (Math.abs(number) < 10_000 ? whole(number) : SHORT.format(number));
export const percent = (share, digits = 0) => `${(100 * (share || 0)).toFixed(digits)} %`;
export const tokens = (number) => `${short(number)} ${number === 1 ? "token" : "tokens"}`;
export const plural = (number, word) => `${whole(number)} ${word}${number === 1 ? "" : "s"}`;
export const words = (text) => text.replaceAll("_", " ");

/** Return how long something took. */
export function took(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  return milliseconds < 1000
    ? `${Math.round(milliseconds)} ms`
    : `${(milliseconds / 1000).toFixed(1)} s`;
}

/** Return dollars with as many digits as a small sum needs. */
export function money(dollars) {
  const size = Math.abs(dollars);
  const digits = size === 0 || size >= 1 ? 2 : size >= 0.01 ? 3 : 5;
  return new Intl.NumberFormat("en", {
    style: "currency",
    currency: "USD",
    minimumFractionDigits: Math.min(digits, 2),
    maximumFractionDigits: digits,
  }).format(dollars);
}

/** Return how long ago a time was. */
export function ago(time) {
  let value = (new Date(time) - Date.now()) / 1000;
  for (const [unit, size] of STEPS) {
    if (Math.abs(value) < size)
      return Math.abs(value) < 5 && unit === "second"
        ? "just now"
        : AGO.format(Math.round(value), unit);
    value /= size;
  }
  return "";
}

/** Return a time that stays true while the page is open. */
export function since(time) {
  if (!time) return h("span", {}, "–");
  return h(
    "time",
    { datetime: time, title: new Date(time).toLocaleString(), "data-ago": "" },
    ago(time),
  );
}

export const clock = (time) =>
  new Date(time).toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  });

setInterval(() => {
  for (const element of document.querySelectorAll("time[data-ago]")) {
    const text = ago(element.dateTime);
    if (element.textContent !== text) element.textContent = text;
  }
}, 5_000);
