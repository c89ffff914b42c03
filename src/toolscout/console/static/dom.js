// Elements from plain values. Text is always text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element; `props` holds attributes, `onevent` listeners and `style` as an object. */
export function h(tag, props = {}, ...children) {
  return dressed(document.createElement(tag), props, children);
}

/** Return an element of SVG. */
export function s(tag, props = {}, ...children) {
  return dressed(document.createElementNS(SVG, tag), props, children);
}

function dressed(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

const PATHS = {
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14Zm5 12 4.5 4.5",
  catalogue: "M4 6h16M4 12h16M4 18h10",
  servers: "M4 5h16v6H4zM4 13h16v6H4zM7.5 8h.01M7.5 16h.01",
  sessions: "M4 5h16v11H9l-5 4V5Zm4 4h8M8 12.5h5",
  waiting: "M7 3.5h10M7 20.5h10M8 3.5c0 4.5 4 5.5 4 8.5s-4 4-4 8.5M16 3.5c0 4.5-4 5.5-4 8.5s4 4 4 8.5",
  audit: "M12 3.5 5 6v5.5c0 4.3 3 7.3 7 9 4-1.7 7-4.7 7-9V6Zm-3 8.2 2.2 2.2 4-4.2",
  savings: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  map: "M6 7h.01M11 5h.01M17 8h.01M8 13h.01M14 12h.01M19 15h.01M6 18h.01M12 18h.01M16.5 19h.01",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5Z",
  auto: "M12 3.5a8.5 8.5 0 1 0 0 17ZM12 3.5a8.5 8.5 0 0 1 0 17",
  close: "m6 6 12 12M18 6 6 18",
  leave: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  fit: "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
  docs: "M12 6.5C10 5 7 4.5 4 5v13c3-.5 6 0 8 1.5 2-1.5 5-2 8-1.5V5c-3-.5-6 0-8 1.5Zm0 0v13",
  copy: "M9 9h10v11H9zM5 15V4h10",
};

/** Return one of the page's own icons. */
export function icon(name, size = 18) {
  const width = name === "map" ? 3 : 1.8;
  const path = s("path", {
    d: PATHS[name],
    fill: "none",
    stroke: "currentColor",
    "stroke-width": width,
    "stroke-linecap": "round",
    "stroke-linejoin": "round",
  });
  return s("svg", { viewBox: "0 0 24 24", width: size, height: size, "aria-hidden": "true" }, path);
}

/** Return a function that runs at most once per interval, and once more at the end. */
export function paced(work, milliseconds) {
  let timer = 0;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      work();
    }, milliseconds);
  };
}
