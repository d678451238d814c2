// Nodes and workloads at a glance, and what needs attention.

import { html, nothing } from "../lit.js";
import { meter } from "../meter.js";
import { nodes, nodeUsage, pods, podUsage, scope } from "../cluster.js";
import { amounts, ownerOf, stateOf, toneOf, troubleOf, used } from "../pods.js";
import { badge, card, clipped, problem } from "../parts.js";
import { may } from "../rights.js";
import { SHOWN } from "./pod_list.js";
import { byName, isReady, nodeBadges, nodeMeters } from "./nodes.js";

const MOST_WORKLOADS = 200;
const MOST_TROUBLES = 12;
const WAITING_MS = 15000;
/** The order of workloads: those in trouble first. */
const RANKS = { bad: 0, busy: 1, good: 2, done: 3 };

export function overviewPage() {
  const watch = pods();
  return html`<h1>Overview</h1>
    ${problem(watch)}
    ${tiles(watch.all)}
    ${attention(watch.all)}
    ${may("list", "nodes") ? nodeCard() : nothing}
    ${card("Workloads", workloadTable(watch.all))}`;
}

function tiles(list) {
  const tones = { good: 0, busy: 0, bad: 0, done: 0 };
  for (const pod of list) tones[toneOf(stateOf(pod))] += 1;
  const tile = (tone) => html`<a class="tile ${tones[tone] ? tone : ""}" href="#/pods?show=${tone}"><strong>${tones[tone]}</strong> ${tones[tone] === 1 ? "pod" : "pods"} ${SHOWN[tone]}</a>`;
  return html`<div class="tiles">${["bad", "busy", "good", "done"].map(tile)}</div>`;
}

// What needs attention.

/** Draw the nodes and pods that do not work, each with the reason. */
function attention(list) {
  const broken = may("list", "nodes") ? nodes().all.filter((node) => !isReady(node)) : [];
  const troubled = list.map((pod) => ({ pod, words: troubleOf(pod) })).filter(({ pod, words }) => words && needsAttention(pod));
  if (!broken.length && !troubled.length) return nothing;
  troubled.sort((a, b) => RANKS[toneOf(stateOf(a.pod))] - RANKS[toneOf(stateOf(b.pod))] || (a.pod.metadata.name < b.pod.metadata.name ? -1 : 1));
  return card("Needs attention", html`<ul class="plain">
      ${byName(broken).map((node) => html`<li class="line why"><a class="name" href="#/node/${node.metadata.name}">${node.metadata.name}<span class="dim">Node</span></a> <span>${badge("NotReady", "bad")}</span> <span>${readyMessage(node)}</span></li>`)}
      ${troubled.slice(0, MOST_TROUBLES).map(({ pod, words }) => troubleLine(pod, words))}
    </ul>
    ${troubled.length > MOST_TROUBLES ? html`<p class="dim">${troubled.length - MOST_TROUBLES} more: <a href="#/pods?show=bad">pods in trouble</a></p>` : nothing}`);
}

/** A pod that was made a moment ago may still find its node. */
function needsAttention(pod) {
  return toneOf(stateOf(pod)) !== "busy" || Date.now() - Date.parse(pod.metadata.creationTimestamp) > WAITING_MS;
}

function troubleLine(pod, words) {
  const { namespace, name } = pod.metadata;
  const state = stateOf(pod) === "Running" ? "Restarted" : stateOf(pod);
  const href = `#/pod/${namespace}/${name}`;
  return html`<li class="line why"><a class="name" href=${href}>${name}<span class="dim">Pod${scope.namespace ? "" : ` in ${namespace}`}</span></a> <span>${badge(state, state === "Restarted" ? "busy" : toneOf(state))}</span>
    <span>${clipped(words, 300)} ${pod.spec.nodeName ? (may("get", "pods/log", namespace) ? html`<a href="${href}/logs">logs</a>` : nothing) : html`<a href="${href}/why">why</a>`}</span></li>`;
}

function readyMessage(node) {
  const ready = (node.status?.conditions ?? []).find((each) => each.type === "Ready");
  return ready?.message ?? "The node has not reported yet.";
}

// Nodes.

function nodeCard() {
  const watch = nodes();
  const usage = nodeUsage();
  return card("Nodes", html`${problem(watch)}<ul class="plain">${head("capacity")}${byName(watch.all).map((node) => html`<li class="line">
      <a class="name" href="#/node/${node.metadata.name}">${node.metadata.name}</a>
      <span>${nodeBadges(node)}</span>
      ${nodeMeters(node, usage.get("", node.metadata.name))}
    </li>`)}</ul>`);
}

function head(end) {
  return html`<li class="line head" aria-hidden="true"><span></span><span></span><span class="pair"><span>CPU <span class="of">used / ${end}</span></span><span>Memory <span class="of">used / ${end}</span></span></span></li>`;
}

// Workloads.

/** Return pods by workload, with the sums of their usage, requests and limits; those in trouble first. */
export function workloads(list, usage) {
  const found = new Map();
  for (const pod of list) {
    if (toneOf(stateOf(pod)) === "done") continue;
    const owner = ownerOf(pod);
    const key = `${owner.kind} ${pod.metadata.namespace}/${owner.name}`;
    const group = found.get(key) ?? { ...owner, namespace: pod.metadata.namespace, pods: [], worst: "Running", cpu: {}, memory: {} };
    found.set(key, group);
    group.pods.push(pod);
    if (RANKS[toneOf(stateOf(pod))] < RANKS[toneOf(group.worst)]) group.worst = stateOf(pod);
    const own = usage.get(pod.metadata.namespace, pod.metadata.name);
    for (const resource of ["cpu", "memory"]) add(group[resource], { used: used(own, resource), ...amounts(pod.spec, resource) }, group.pods.length === 1);
  }
  const rank = (each) => RANKS[toneOf(each.worst)];
  return [...found.values()].sort((a, b) => rank(a) - rank(b) || (b.cpu.used ?? -1) - (a.cpu.used ?? -1) || (a.name < b.name ? -1 : 1));
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
  return html`<ul class="plain">${head("limit")}${all.slice(0, MOST_WORKLOADS).map(workload)}</ul>
    ${all.length > MOST_WORKLOADS ? html`<p class="dim">${all.length - MOST_WORKLOADS} more: <a href="#/pods">all pods</a></p>` : nothing}
    <p class="dim">A bar ends at the limit; the dark mark is the request.</p>`;
}

function workload({ kind, name, namespace, pods, worst, cpu, memory }) {
  const running = pods.filter((pod) => stateOf(pod) === "Running").length;
  const href = kind === "Pod" ? `#/pod/${namespace}/${name}` : `#/workload/${kind}/${namespace}/${name}`;
  const text = kind === "Pod" ? worst : running === pods.length ? `${running} running` : `${running}/${pods.length} running`;
  return html`<li class="line">
    <a class="name" href=${href}>${name}<span class="dim">${kind}${scope.namespace ? "" : ` in ${namespace}`}</span></a>
    <span>${badge(text, toneOf(worst))}</span>
    <span class="pair">${meter("cpu", cpu)} ${meter("memory", memory)}</span>
  </li>`;
}
