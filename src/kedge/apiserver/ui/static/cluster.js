// The objects that several pages show: each is watched once, as long as a page needs it.

import { Watch } from "./watch.js";
import { path } from "./session.js";
import { ask } from "./rights.js";
import { redraw } from "./redraw.js";

const NAMESPACE = "kedge-namespace";
const IDLE_MS = 20000;

export const scope = {
  /** The namespace that is shown; empty for all. */
  namespace: "",
  /** Whether the user may list pods of all namespaces. */
  everywhere: false,
  /** Whether the user may list namespaces. */
  namespaces: false,
};

/** Find out what the user may see, and begin with a namespace where it may see pods. */
export async function findScope(wanted) {
  [scope.everywhere, scope.namespaces] = await Promise.all([ask("list", "pods"), ask("list", "namespaces")]);
  const kept = wanted ?? localStorage.getItem(NAMESPACE) ?? "";
  scope.namespace = kept || scope.everywhere ? kept : "default";
}

export function choose(namespace) {
  scope.namespace = namespace || (scope.everywhere ? "" : "default");
  localStorage.setItem(NAMESPACE, scope.namespace);
  redraw();
}

const watches = new Map();

/** Return the watch of a resource in a namespace; of all if that is empty. A watch that no page has
 *  asked for in a while is closed. */
export function watched(version, plural, namespace = "", query = {}) {
  const target = path(version, plural, namespace);
  const key = `${target}?${new URLSearchParams(query)}`;
  let found = watches.get(key);
  if (!found) {
    found = { watch: new Watch(target, query), used: 0 };
    watches.set(key, found);
  }
  found.used = Date.now();
  return found.watch;
}

setInterval(() => {
  for (const [key, { watch, used }] of watches) {
    // A page is drawn again at least every ten seconds, so what it needs was asked for lately.
    if (Date.now() - used > IDLE_MS && !document.hidden) {
      watch.stop();
      watches.delete(key);
    }
  }
}, IDLE_MS / 2);

export function stopAll() {
  for (const { watch } of watches.values()) watch.stop();
  watches.clear();
}

export const pods = () => watched("v1", "pods", scope.namespace);
export const podUsage = () => watched("metrics/v1alpha1", "pods", scope.namespace);
export const nodes = () => watched("v1", "nodes");
export const nodeUsage = () => watched("metrics/v1alpha1", "nodes");
