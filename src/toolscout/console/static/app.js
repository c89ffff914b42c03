// The frame: pages by address, the connection, and dialogs over the pages.

import { ask, follow, forget, hasToken, onUnauthorised, takeToken } from "./api.js";
import { audit } from "./audit.js";
import { catalogue } from "./catalogue.js";
import { askToken, showKeys } from "./dialogs.js";
import { fill, h, icon, paced } from "./dom.js";
import { whole } from "./format.js";
import { listenToKeys } from "./keys.js";
import { map } from "./map.js";
import { address, go, route, withParams } from "./routes.js";
import { savings } from "./savings.js";
import { search } from "./search.js";
import { servers } from "./servers.js";
import { sessions } from "./sessions.js";
import { nextTheme, themeNow } from "./themes.js";
import { waiting } from "./waiting.js";
import { Drawer } from "./drawer.js";

const PAGES = { search, catalogue, servers, sessions, waiting, audit, savings, map };
// Pages that tell what everybody does, which a token with a profile may not see.
const FOR_ALL_ONLY = ["waiting", "audit"];
const main = document.querySelector("#main");
const drawer = new Drawer(
  () => go(withParams({ tool: "" }), { replace: true }),
  () => state.overview.capabilities.edit,
);
// Until the first answer arrives, the page shows what it can.
const UNKNOWN = {
  tools: null,
  servers: {},
  encoders: [],
  tokens: null,
  capabilities: {},
  host: "",
};
const state = { overview: UNKNOWN, terms: { states: {}, refusals: {} }, name: "", page: null };

const context = {
  overview: () => state.overview,
  terms: () => state.terms,
  reload: loadOverview,
};

function showTabs() {
  const counts = {
    catalogue: state.overview.tools,
    servers: Object.values(state.overview.servers).reduce((a, b) => a + b, 0),
    waiting: state.overview.waiting,
  };
  const isLimited = ["gateway", "daemon"].includes(state.overview.host) && !state.overview.capabilities.audit;
  const names = Object.keys(PAGES).filter((name) => !isLimited || !FOR_ALL_ONLY.includes(name));
  fill(
    document.querySelector("#tabs"),
    names.map((name) =>
      h(
        "a",
        { href: address(name), "aria-current": name === state.name ? "page" : null },
        icon(name),
        h("span", {}, PAGES[name].title),
        counts[name]
          ? h("span", { class: `count ${name}`, "aria-hidden": "true" }, whole(counts[name]))
          : null,
      ),
    ),
  );
  document.querySelector("#tabs [aria-current]")?.scrollIntoView({ block: "nearest" });
}

async function loadOverview() {
  state.overview = await ask("overview");
  document.querySelector("#version").textContent =
    `${state.overview.version} · ${state.overview.host}`;
  const docs = document.querySelector("#docs");
  docs.href = state.overview.docs;
  docs.hidden = false;
  document.querySelector("#leave").hidden = !hasToken();
  if (!Object.keys(state.terms.states).length) state.terms = await ask("terms");
  showTabs();
  drawer.overview();
  state.page?.overview?.(state.overview);
}

function show() {
  const { page: name, params } = route();
  const page = PAGES[name];
  if (!page) return go(address("search"), { replace: true });
  const isNew = name !== state.name;
  if (isNew) enter(name, page);
  state.page.update(params);
  drawer.show(params.tool ?? "", params.q && name === "search" ? params : null);
  document.title = `${[params.tool, params.q, page.title].find(Boolean)} · toolscout`;
}

function enter(name, page) {
  const isFirst = !state.name;
  state.page?.leave?.();
  state.name = name;
  const root = h("div", { class: `page ${name}` });
  fill(main, root);
  state.page = page.mount(root, context);
  showTabs();
  scrollTo(0, 0);
  // Screen readers announce the new page; the first page sets the focus itself.
  if (!isFirst && !state.page.focus?.()) main.focus({ preventScroll: true });
  if (isFirst) state.page.focus?.();
}

function tellLive(isOn, wasAway = false) {
  const shown = document.querySelector("#live");
  shown.className = `live ${isOn ? "on" : "off"}`;
  shown.lastElementChild.textContent = isOn ? "Live" : "Reconnecting";
  if (isOn && wasAway) refresh();
}

const refresh = paced(() => {
  loadOverview().catch(() => {});
  state.page?.event?.("resync", {});
}, 200);
const overviewSoon = paced(() => loadOverview().catch(() => {}), 400);

function hear(kind, data) {
  if (kind === "resync") return refresh();
  if (["overview", "server", "waiting"].includes(kind)) overviewSoon();
  state.page?.event?.(kind, data);
}

function showTheme() {
  const [name, label] = themeNow();
  const button = document.querySelector("#theme");
  fill(button, icon(name));
  button.setAttribute("aria-label", label);
  button.title = label;
  state.page?.recolour?.();
}

function changeTheme() {
  nextTheme();
  showTheme();
}

function start() {
  takeToken();
  onUnauthorised(askToken);
  fill(document.querySelector("#docs"), icon("docs"));
  fill(document.querySelector("#leave"), icon("leave"));
  document.querySelector("#leave").addEventListener("click", () => {
    forget();
    location.reload();
  });
  document.querySelector("#theme").addEventListener("click", changeTheme);
  document.querySelector("#help").addEventListener("click", showKeys);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    state.page?.recolour?.(),
  );
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  listenToKeys({ page: () => state.page, theme: changeTheme });
  showTabs();
  showTheme();
  show();
  addEventListener("hashchange", show);
  loadOverview().catch(() => {}); // the page itself says what is wrong
  follow(hear, tellLive);
}

start();
