// Nodes and workloads at a glance.

import { html, nothing } from "../lit.js";
import { meter } from "../meter.js";
import { nodes, nodeUsage, pods, podUsage, scope } from "../cluster.js";
import { amounts, ownerOf, stateOf, toneOf, used } from "../pods.js";

import { badge, card, problem } from "../parts.js";
import { may } from "../rights.js";
import { isReady, nodeMeters } from "./nodes.js";

const MOST_WORKLOADS = 200;

export function overviewPage() {
  const watch = pods();
  return html`<h1>Overview</h1>
    ${problem(watch)}
    ${may("list", "nodes") ? nodeCard() : nothing}
    ${tiles(watch.all)} ${card("Workloads", workloadTable(watch.all))}`;
}

function tiles(list) {
  const tones = { good: 0, busy: 0, bad: 0, done: 0 };
  for (const pod of list) tones[toneOf(stateOf(pod))] += 1;
  const tile = (count, label, tone) => html`<a class="tile ${count ? tone : ""}" href="#/pods"><strong>${count}</strong> ${label}</a>`;
  return html`<div class="tiles">
    ${tile(tones.good, "running", "good")} ${tile(tones.busy, "starting or ending", "busy")}
    ${tile(tones.bad, "in trouble", "bad")} ${tile(tones.done, "completed", "done")}
  </div>`;
}

function nodeCard() {
  const watch = nodes();
  const usage = nodeUsage();
  const rows = watch.all.sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  return card("Nodes", html`${problem(watch)}<ul class="plain">${rows.map((node) => html`<li class="line">
      <a class="name" href="#/node/${node.metadata.name}">${node.metadata.name}</a>
      ${badge(isReady(node) ? "Ready" : "NotReady", isReady(node) ? "good" : "bad")}
      ${nodeMeters(node, usage.get("", node.metadata.name))}
    </li>`)}</ul>`);
}

/** Return pods by workload, with the sums of their usage, requests and limits. */
export function workloads(list, usage) {
  const found = new Map();
  for (const pod of list) {
    if (toneOf(stateOf(pod)) === "done") continue;
    const owner = ownerOf(pod);
    const key = `${owner.kind} ${pod.metadata.namespace}/${owner.name}`;
    const group = found.get(key) ?? { ...owner, namespace: pod.metadata.namespace, pods: [], cpu: {}, memory: {} };
    found.set(key, group);
    group.pods.push(pod);
    const own = usage.get(pod.metadata.namespace, pod.metadata.name);
    for (const resource of ["cpu", "memory"]) add(group[resource], { used: used(own, resource), ...amounts(pod.spec, resource) }, group.pods.length === 1);
  }
  return [...found.values()].sort((a, b) => (b.cpu.used ?? -1) - (a.cpu.used ?? -1) || (a.name < b.name ? -1 : 1));
}

function add(sums, { used, request, limit }, isFirst) {
  if (used !== undefined) sums.used = (sums.used ?? 0) + used;
  if (request !== undefined) sums.request = (sums.request ?? 0) + request;
  // The sum has a limit only if every pod has one.
  sums.limit = limit === undefined || (!isFirst && sums.limit === undefined) ? undefined : (sums.limit ?? 0) + limit;
}

function workloadTable(list) {
  const all = workloads(list, podUsage());
  if (!all.length) return html`<p class="dim">No workloads${scope.namespace ? ` in ${scope.namespace}` : ""}.</p>`;
  return html`<ul class="plain">${all.slice(0, MOST_WORKLOADS).map(workload)}</ul>
    ${all.length > MOST_WORKLOADS ? html`<p class="dim">${all.length - MOST_WORKLOADS} more: <a href="#/pods">all pods</a></p>` : nothing}`;
}

function workload({ kind, name, namespace, pods, cpu, memory }) {
  const ready = pods.filter((pod) => stateOf(pod) === "Running").length;
  const href = kind === "Pod" ? `#/pod/${namespace}/${name}` : `#/workload/${kind}/${namespace}/${name}`;
  return html`<li class="line">
    <a class="name" href=${href}>${name}<span class="dim">${kind}${scope.namespace ? "" : ` in ${namespace}`}</span></a>
    ${badge(`${ready}/${pods.length}`, ready === pods.length ? "good" : "busy")}
    <span class="pair">${meter("cpu", cpu)} ${meter("memory", memory)}</span>
  </li>`;
}

