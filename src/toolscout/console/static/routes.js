// Addresses of the page: `#/search?q=…`. Every view has one.

/** Return the page and the parameters of the address. */
export function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path || "search", params: Object.fromEntries(new URLSearchParams(query)) };
}

/** Return the address of a page. */
export function address(page, params = {}) {
  const given = Object.entries(params).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined,
  );
  return `#/${page}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Return the address of this page with some parameters changed. */
export function withParams(changed) {
  const { page, params } = route();
  return address(page, { ...params, ...changed });
}

/** Go to an address; `replace` leaves no step to go back to. */
export function go(target, { replace = false } = {}) {
  if (target === location.hash) return;
  if (replace) {
    history.replaceState(null, "", target);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = target;
  }
}
