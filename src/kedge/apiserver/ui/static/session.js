// Who is signed in, and requests in that name.
//
// The cookie of the session is the browser's alone. The page secret is kept here, in the storage of
// this origin. A request needs both.

const SECRET = "kedge-page-secret";
const MOST_TRIES = 5;
const KEEP_ALIVE_MS = 5 * 60 * 1000;

export const session = { user: "", groups: [], ends: null };

let signedOut = () => {};

/** Call this function when the session has ended. */
export function onSignedOut(callback) {
  signedOut = callback;
}

export class ApiError extends Error {
  constructor(code, message, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** Sign in with the code in the address, or go on with the session of this browser. */
export async function resume() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const code = fragment.get("code");
  if (code !== null) {
    // The code works once, but it need not stay in the history of the browser.
    const place = fragment.get("namespace");
    history.replaceState(null, "", place ? `#/overview?namespace=${encodeURIComponent(place)}` : "#/overview");
    return signIn(code);
  }
  if (!localStorage.getItem(SECRET)) return false;
  const response = await send("ui/session");
  if (!response.ok) return false;
  take(await response.json());
  return true;
}

/** Exchange a code for a session; throws ApiError. */
export async function signIn(code) {
  const headers = { "Content-Type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify({ code }), credentials: "same-origin" };
  const response = await patiently("session", options, MOST_TRIES);
  if (!response.ok) throw await errorOf(response);
  const found = await response.json();
  localStorage.setItem(SECRET, found.pageSecret);
  take(found);
  return true;
}

export async function signOut() {
  await send("ui/session", { method: "DELETE" }).catch(() => null);
  forget();
}

function take(found) {
  Object.assign(session, { user: found.user, groups: found.groups, ends: new Date(found.ends) });
}

function forget() {
  localStorage.removeItem(SECRET);
  session.user = "";
  signedOut();
}

setInterval(() => {
  if (session.user && !document.hidden) send("ui/session").then(noteEnd, () => {});
}, KEEP_ALIVE_MS);

function noteEnd(response) {
  if (response.status === 401 && session.user) forget();
}

function send(path, options = {}) {
  const headers = { Accept: "application/json", ...options.headers, "X-Kedge-Dashboard": localStorage.getItem(SECRET) ?? "" };
  const isSafe = options.isSafe ?? (options.method ?? "GET") === "GET";
  return patiently(`/${path}`, { ...options, headers, credentials: "same-origin", cache: "no-store" }, isSafe ? MOST_TRIES : 1);
}

/** Fetch again if the browser gave up: it does so when a network interface of the machine comes or
 *  goes, as with every pod that starts here. */
async function patiently(url, options, tries) {
  for (;;) {
    try {
      return await fetch(url, options);
    } catch (error) {
      tries -= 1;
      if (tries <= 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

async function errorOf(response) {
  const text = await response.text();
  try {
    const status = JSON.parse(text);
    return new ApiError(response.status, status.message || response.statusText, status);
  } catch {
    return new ApiError(response.status, text.slice(0, 500) || response.statusText);
  }
}

/** Return the path of a resource, of one object, or of a subresource. */
export function path(version, plural, namespace = "", name = "", part = "") {
  const root = version.includes("/") ? `apis/${version}` : `api/${version}`;
  const words = [root, ...(namespace ? ["namespaces", namespace] : []), plural, name, part];
  return words.filter(Boolean).join("/");
}

/** Call the API; returns the response, throws ApiError. */
export async function call(target, { query = {}, ...options } = {}) {
  const parameters = new URLSearchParams({ pretty: "false", ...query });
  const response = await send(`${target}?${parameters}`, options);
  if (response.ok) return response;
  noteEnd(response);
  throw await errorOf(response);
}

export async function get(target, query) {
  return (await call(target, { query })).json();
}

/** Post what stores nothing: a review, or a dry run. */
export async function post(target, document, query) {
  const headers = { "Content-Type": "application/json" };
  return (await call(target, { method: "POST", headers, body: JSON.stringify(document), query, isSafe: true })).json();
}

/** Open a WebSocket to the API. `query` are pairs, because names may repeat. */
export function open(target, query, protocol) {
  const parameters = new URLSearchParams(query);
  const url = `wss://${location.host}/${target}?${parameters}`;
  return new WebSocket(url, [protocol, `dashboard.kedge.${localStorage.getItem(SECRET) ?? ""}`]);
}
