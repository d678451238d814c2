// Who is signed in, and requests in that name.
//
// The cookie of the session is the browser's alone. The page secret is kept here, in the storage of
// this origin. A request needs both.

const SECRET = "kedge-page-secret";
const USER = "kedge-user";
const MOST_TRIES = 5;
const KEEP_ALIVE_MS = 5 * 60 * 1000;
const ENDED = "The session has ended: it was idle, too long, or the server was started again. This page goes on as soon as you are signed in.";

export const session = {
  user: "",
  groups: [],
  ends: null,
  /** The user whom this browser was signed in as before, if that is another one. */
  before: "",
};

let signedOut = () => {};

/** Call this function with the reason when the session has ended. */
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
  const before = localStorage.getItem(USER) ?? "";
  // Whoever follows a link with a code of somebody else works as that user: the page says so.
  if (before && before !== found.user) session.before = before;
  localStorage.setItem(USER, found.user);
  Object.assign(session, { user: found.user, groups: found.groups, ends: new Date(found.ends) });
}

function forget(reason = "") {
  localStorage.removeItem(SECRET);
  leave(reason);
}

function leave(reason) {
  session.user = "";
  signedOut(reason);
}

/** Another tab of this browser has signed in or out: this one does the same. */
window.addEventListener("storage", ({ key, newValue }) => {
  if (key !== SECRET && key !== null) return;
  if (!newValue) {
    if (session.user) leave("You have signed out in another tab.");
  } else if (!session.user) location.reload();
  else send("ui/session").then((response) => response.json()).then((found) => found.user === session.user || location.reload(), () => {});
});

setInterval(() => {
  const secret = localStorage.getItem(SECRET);
  if (session.user && !document.hidden) send("ui/session").then((response) => noteEnd(response, secret), () => {});
}, KEEP_ALIVE_MS);

/** Note the end of the session of a response, unless another tab has begun another one meanwhile. */
function noteEnd(response, secret) {
  if (response.status === 401 && session.user && localStorage.getItem(SECRET) === secret) forget(ENDED);
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
      if (tries <= 0) throw new ApiError(0, `The server does not answer: ${error.message}.`);
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

/** Return a name as one segment of a path. Names come from the address of the page too, which others may
 *  have written: none leads to another path, or to a query. */
function segment(name) {
  return /^\.*$/.test(name) ? name.replaceAll(".", "-") : encodeURIComponent(name);
}

/** Return the path of a resource, of one object, or of a subresource. */
export function path(version, plural, namespace = "", name = "", part = "") {
  const root = version.includes("/") ? `apis/${version}` : `api/${version}`;
  const words = [...(namespace ? ["namespaces", namespace] : []), plural, name, part];
  return [root, ...words.filter(Boolean).map(segment)].join("/");
}

/** Call the API; returns the response, throws ApiError. */
export async function call(target, { query = {}, ...options } = {}) {
  const parameters = new URLSearchParams({ pretty: "false", ...query });
  const secret = localStorage.getItem(SECRET);
  const response = await send(`${target}?${parameters}`, options);
  if (response.ok) return response;
  noteEnd(response, secret);
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

/** Return the warnings of a response. */
export function warningsOf(response) {
  return [...(response.headers.get("Warning") ?? "").matchAll(/299 - "((?:[^"\\]|\\.)*)"/g)].map((each) => each[1].replace(/\\(.)/g, "$1"));
}
