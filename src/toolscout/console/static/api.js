// The API: requests with the bearer token if there is one, and the stream of events.

const KEY = "toolscout.token";
const PAUSES = [500, 1_000, 2_000, 5_000, 10_000];
const UNAUTHORISED = 401;

/** An answer that is an error: what happened, and what to do next. */
export class Problem extends Error {
  constructor(message, hint = "", status = 0) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

let asking = null;
let askForToken = async () => null;

/** Set the function that asks a person for a token; it returns nothing if there is none. */
export function onUnauthorised(work) {
  askForToken = work;
}

/** Take a token out of the address, where `toolscout console` puts it. */
export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", location.pathname);
  }
}

export const hasToken = () => Boolean(read());

/** Forget the token of this tab. */
export function forget() {
  sessionStorage.removeItem(KEY);
}

function read() {
  return sessionStorage.getItem(KEY) ?? "";
}

function headers(more = {}) {
  return read() ? { ...more, Authorization: `Bearer ${read()}` } : more;
}

/** Return the answer to a request; throws a `Problem`. */
export async function ask(path, params = {}, { method = "GET", signal, body } = {}) {
  const response = await fetched(`/api/${path}${query(params)}`, {
    method,
    signal,
    headers: headers(body ? { "Content-Type": "application/json" } : {}),
    body: body && JSON.stringify(body),
  });
  if (response.status === UNAUTHORISED) {
    await newToken();
    return ask(path, params, { method, signal, body });
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw problem(response, answer);
  return answer;
}

async function fetched(url, options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(
      "toolscout does not answer.",
      "Check that it is running. This page continues by itself once it answers.",
    );
  }
}

function query(params) {
  const given = Object.entries(params).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined,
  );
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

function problem(response, answer) {
  const detail = answer?.error ?? {};
  const message = typeof detail === "string" ? detail : detail.message;
  return new Problem(
    message || `The server answered ${response.status}.`,
    detail.hint ?? answer?.hint ?? "",
    response.status,
  );
}

/** Wait for a token; all requests that wait share one dialog. */
async function newToken() {
  const wasWrong = hasToken();
  asking ??= askForToken(wasWrong).finally(() => {
    asking = null;
  });
  const token = await asking;
  if (!token)
    throw new Problem("This gateway needs a token.", "Reload the page to enter one.", UNAUTHORISED);
  sessionStorage.setItem(KEY, token);
}

/** Read events for ever: `tell(kind, data)` gets each, `state` whether there is a connection. */
export async function follow(tell, state) {
  let last = "";
  for (let failures = 0; ; failures += 1) {
    try {
      const response = await fetch("/api/events", {
        headers: headers(last ? { "Last-Event-ID": last } : {}),
      });
      if (response.status === UNAUTHORISED) await newToken();
      if (response.ok) {
        state(true, failures > 0);
        failures = 0;
        last = await readAll(response.body, tell, last);
      }
    } catch {
      // Reported below; the next attempt follows.
    }
    state(false);
    await new Promise((done) => setTimeout(done, PAUSES[Math.min(failures, PAUSES.length - 1)]));
  }
}

async function readAll(body, tell, last) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const seen = { id: last };
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return seen.id;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) hear(block, tell, seen);
    }
  } catch {
    return seen.id;
  }
}

function hear(block, tell, seen) {
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).trimStart();
  }
  if (fields.id) seen.id = fields.id;
  if (fields.event) tell(fields.event, JSON.parse(fields.data || "{}"));
}
