// The page: sign-in, navigation, and which page the address names.

import { html, nothing, render, live } from "./lit.js";
import { onSignedOut, resume, session, signIn, signOut } from "./session.js";
import { onRedraw, redraw } from "./redraw.js";
import { choose, findScope, scope, stopAll, watched } from "./cluster.js";
import { may } from "./rights.js";
import { overviewPage } from "./pages/overview.js";
import { podListPage } from "./pages/pod_list.js";
import { nodePage, nodesPage } from "./pages/nodes.js";
import { podPage } from "./pages/pod.js";
import { limitsPage } from "./pages/limits.js";
import { devicesPage } from "./pages/devices.js";
import { workloadPage } from "./pages/workload.js";
import { createPage } from "./pages/create.js";

/** The link that is marked while a page of one object is shown. */
const PARENTS = { pod: "pods", node: "nodes", workload: "overview" };

const root = document.getElementById("app");
const THEME = "kedge-theme";
const HEARTBEAT_MS = 5000;

/** Pages by the first word of the address, which anybody may have written: only these names exist. */
const PAGES = {
  __proto__: null,
  overview: () => overviewPage(),
  pods: (_words, query) => podListPage(query.get("show") ?? ""),
  pod: ([namespace, name, tab]) => podPage(namespace, name, tab),
  nodes: () => nodesPage(),
  node: ([name]) => nodePage(name),
  limits: () => limitsPage(),
  devices: () => devicesPage(),
  new: () => createPage(),
  workload: ([kind, namespace, name, tab]) => workloadPage(kind, namespace, name, tab),
};

/** The links of the navigation: key, label, and whether the user may see anything there. */
const LINKS = [
  { page: "overview", key: "o", label: "Overview", offered: () => true },
  { page: "pods", key: "p", label: "Pods", offered: () => true },
  { page: "nodes", key: "n", label: "Nodes", offered: () => may("list", "nodes") },
  { page: "limits", key: "l", label: "Limits", offered: () => may("list", "limitranges", scope.namespace) },
  { page: "devices", key: "d", label: "Devices", offered: () => may("list", "nodes") },
  { page: "new", key: "c", label: "New", offered: () => may("create", "pods", scope.namespace || "default") },
];

let state = "starting";
let failure = "";

function address() {
  const [words, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { words: words.split("/").map(decoded), query: new URLSearchParams(query ?? "") };
}

/** Anybody can make a link to this page. */
function decoded(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

async function start() {
  applyTheme(localStorage.getItem(THEME));
  try {
    state = (await resume()) ? "in" : "out";
  } catch (error) {
    state = "out";
    failure = error.message;
  }
  if (state === "in") await enter();
  redraw();
}

async function enter() {
  await findScope(address().query.get("namespace"));
  state = "in";
  failure = "";
}

onSignedOut((reason) => {
  stopAll();
  state = "out";
  failure = reason;
  redraw();
});

// Signing in.

function signInPage() {
  const submit = async (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("code").trim();
    try {
      await signIn(/code=([\w-]+)/.exec(text)?.[1] ?? text);
      await enter();
    } catch (error) {
      failure = error.message;
    }
    redraw();
  };
  return html`<main class="sign-in card">
    <h1>kedge</h1>
    <p>Run this in a terminal to sign in:</p>
    <pre><code>kedge ui</code></pre>
    <form @submit=${submit}>
      <label>Or paste the code or the address that <code>kedge ui --no-browser</code> prints
        <input name="code" autocomplete="off" required></label>
      <button type="submit">Sign in</button>
    </form>
    ${failure ? html`<p role="alert" class="notice bad">${failure}</p>` : nothing}
  </main>`;
}

// The frame of every page.

function frame() {
  const { words, query } = address();
  const page = PAGES[words[0]] ? words[0] : "overview";
  document.title = `${words.filter(Boolean).slice(0, 3).join(" ") || "overview"} – kedge`;
  return html`<a class="skip" href="#main" @click=${focusMain}>Skip to the content</a>
    <header>
      <a class="brand" href="#/overview"><img src="icon.svg" alt="" width="24" height="24"> kedge</a>
      <nav aria-label="Pages">${LINKS.filter((each) => each.offered()).map(({ page: name, label, key }) => html`<a href="#/${name}" aria-current=${name === (PARENTS[page] ?? page) ? "page" : nothing} title="Key ${key}">${label}</a>`)}</nav>
      ${namespaceChoice()}
      <details class="user"><summary aria-label="Signed in as ${session.user}">${session.user}</summary>
        <div class="menu">
          <p class="dim">${session.groups.join(", ")}</p>
          <p class="dim">until ${session.ends?.toLocaleTimeString()}</p>
          <button @click=${showHelp}>Keys</button>
          <button @click=${nextTheme}>Theme: ${localStorage.getItem(THEME) ?? "system"}</button>
          <button @click=${signOut}>Sign out</button>
        </div>
      </details>
    </header>
    <main id="main" tabindex="-1">${otherUser()} ${PAGES[page](words.slice(1), query)}</main>
    ${helpDialog()}`;
}

/** Say that this browser was signed in as somebody else until now. */
function otherUser() {
  if (!session.before) return nothing;
  const close = () => {
    session.before = "";
    redraw();
  };
  return html`<p class="notice" role="alert">You are signed in as ${session.user} now. Before, it was ${session.before}. <button class="small" @click=${close}>Close</button></p>`;
}

// Help.

const KEYS = [["o p n l d c", "overview, pods, nodes, limits, devices, new"], ["/", "filter or search"], ["j k", "next and previous row"], ["Esc", "leave the filter or this help"], ["Ctrl+Shift+Tab", "leave the shell"], ["?", "this help"]];

function helpDialog() {
  return html`<dialog class="help card" aria-label="Keys"><h2>Keys</h2>
    <dl>${KEYS.map(([keys, words]) => html`<div><dt>${keys.split(" ").map((each) => html`<kbd>${each}</kbd> `)}</dt><dd>${words}</dd></div>`)}</dl>
    <button @click=${(event) => event.target.closest("dialog").close()}>Close</button></dialog>`;
}

function focusMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function namespaceChoice() {
  const pick = (event) => choose(event.target.value);
  if (!scope.namespaces)
    return html`<label class="namespace">Namespace <input .value=${live(scope.namespace)} @change=${pick} size="12"></label>`;
  const names = watched("v1", "namespaces").all.map((each) => each.metadata.name).sort();
  if (scope.namespace && !names.includes(scope.namespace)) names.unshift(scope.namespace);
  return html`<label class="namespace">Namespace <select .value=${live(scope.namespace)} @change=${pick}>
    ${scope.everywhere ? html`<option value="" ?selected=${!scope.namespace}>all</option>` : nothing}
    ${names.map((each) => html`<option value=${each} ?selected=${each === scope.namespace}>${each}</option>`)}
  </select></label>`;
}

// Theme and keys.

function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function nextTheme() {
  const next = { light: "dark", dark: null }[localStorage.getItem(THEME)] ?? (localStorage.getItem(THEME) ? null : "light");
  if (next) localStorage.setItem(THEME, next);
  else localStorage.removeItem(THEME);
  applyTheme(next);
  document.dispatchEvent(new Event("theme"));
  redraw();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, k-terminal")) return;
  const link = LINKS.find(({ key, offered }) => key === event.key && offered());
  if (link && state === "in") location.hash = `#/${link.page}`;
  const act = ACTIONS[event.key];
  if (act && state === "in" && act() !== false) event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.matches?.("input[type=search]")) event.target.blur();
});

/** What keys do; false if there is nothing to do. */
const ACTIONS = {
  "/": () => {
    const search = document.querySelector("input[type=search]");
    search?.focus();
    return search !== null;
  },
  "?": showHelp,
  j: () => moveRow(1),
  k: () => moveRow(-1),
  ArrowDown: () => document.activeElement.closest("k-rows") !== null && moveRow(1),
  ArrowUp: () => document.activeElement.closest("k-rows") !== null && moveRow(-1),
};

function moveRow(step) {
  return document.querySelector("k-rows")?.move(step) ?? false;
}

function showHelp() {
  document.querySelector(".user").open = false;
  document.querySelector(".help").showModal();
}

let shownPage = "";

function draw() {
  if (state === "starting") return;
  render(state === "in" ? frame() : signInPage(), root);
  const page = address().words.slice(0, 4).join("/");
  if (page !== shownPage) {
    shownPage = page;
    window.scrollTo(0, 0);
  }
}

onRedraw(draw);
window.addEventListener("hashchange", () => {
  if (location.hash.includes("code=")) location.reload();
  else redraw();
});
setInterval(() => state === "in" && !document.hidden && redraw(), HEARTBEAT_MS);
document.addEventListener("visibilitychange", redraw);
start();
