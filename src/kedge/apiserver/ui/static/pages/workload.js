// One workload: its pods, and requests and limits that fit its usage.

import { html, nothing } from "../lit.js";
import { watched } from "../cluster.js";
import { meter } from "../meter.js";
import { lasting, ownerOf } from "../pods.js";
import { age, bytes, cpu, format, number, round } from "../quantity.js";
import "../plot.js";
import { Course } from "../course.js";
import { courseTimes } from "../usage_plot.js";
import { call, get, path } from "../session.js";
import { changed, redraw } from "../redraw.js";
import { badge, card, facts, plainTable, problem } from "../parts.js";
import { may } from "../rights.js";
import { HEADROOM_PERCENT, proposal } from "../recommendation.js";
import { podTable } from "./pod_list.js";
import { workloads } from "./overview.js";
import { yamlEditor } from "./yaml.js";

/** Version and plural of the kinds that have pods. */
const KINDS = {
  __proto__: null,
  Deployment: ["apps/v1", "deployments"],
  StatefulSet: ["apps/v1", "statefulsets"],
  DaemonSet: ["apps/v1", "daemonsets"],
  ReplicaSet: ["apps/v1", "replicasets"],
  ReplicationController: ["v1", "replicationcontrollers"],
  Job: ["batch/v1", "jobs"],
  CronJob: ["batch/v1", "cronjobs"],
};
const ENDED = ["Succeeded", "Failed"];
/** The courses of pods, by their identity: containers may have been busiest in different pods. */
const days = new Map();
const MOST_DAYS = 20;
/** The usage of pods that have ended, by uid: lists have only pods that run. */
const lastUsage = new Map();
const applied = { key: "", said: "", isGood: false };

export function workloadPage(kind, namespace, name, tab = "pods") {
  if (!KINDS[kind]) return html`<h1>${name}</h1><p class="notice">${kind} is a kind of another program; <a href="#/pods">its pods</a> are shown.</p>`;
  const [version, plural] = KINDS[kind];
  const watch = watched(version, plural, namespace, { fieldSelector: `metadata.name=${name}` });
  const object = watch.get(namespace, name);
  const mine = podsOf(kind, namespace, name);
  const above = object ? ownerOf(object) : {};
  const link = (key, label) => html`<a href="#/workload/${kind}/${namespace}/${name}/${key}" aria-current=${key === tab ? "page" : nothing}>${label}</a>`;
  return html`<h1>${name} ${badge(kind, "done")}</h1>
    ${object ? facts([["Namespace", namespace], ["Pods", readiness(kind, object)], ["Age", age(object.metadata.creationTimestamp)], ["Of", KINDS[above.kind] ? html`<a href="#/workload/${above.kind}/${namespace}/${above.name}">${above.kind} ${above.name}</a>` : undefined]]) : watch.state === "live" ? html`<p role="alert" class="notice bad">${kind} ${name} does not exist in ${namespace}.</p>` : problem(watch)}
    <nav class="tabs" aria-label="Parts of the workload">${link("pods", "Pods")} ${link("sizes", "Right size")} ${link("yaml", "YAML")}</nav>
    ${tab === "yaml" ? yamlEditor({ version, plural, namespace, name }) : tab === "sizes" ? sizes(object, mine, { kind, version, plural, namespace, name }) : podsTab(mine, namespace)}`;
}

/** Return the pods of a workload; those of a CronJob are the pods of its Jobs. */
function podsOf(kind, namespace, name) {
  const isOf = (object, owner, names) => ownerOf(object).kind === owner && names.includes(ownerOf(object).name);
  const pods = watched("v1", "pods", namespace).all;
  if (kind !== "CronJob") return pods.filter((pod) => isOf(pod, kind, [name]));
  const runs = watched("batch/v1", "jobs", namespace).all.filter((job) => isOf(job, kind, [name]));
  return pods.filter((pod) => isOf(pod, "Job", runs.map((job) => job.metadata.name)));
}

/** Return the usage of a pod, also of one that has ended; undefined if it is not known yet. */
function usageOf(pod, usage) {
  const { namespace, name, uid } = pod.metadata;
  const listed = usage.get(namespace, name);
  if (listed || !ENDED.includes(pod.status?.phase)) return listed;
  if (!lastUsage.has(uid)) {
    lastUsage.set(uid, undefined);
    get(path("metrics/v1alpha1", "pods", namespace, name)).then((document) => {
      lastUsage.set(uid, document);
      changed();
    }, () => {});
  }
  return lastUsage.get(uid);
}

function templateOf(object) {
  return (object.spec.jobTemplate ?? object).spec.template;
}

/** Return how many pods of a workload are ready, or have ended, in the words of its kind. */
function readiness(kind, { spec, status = {} }) {
  if (kind === "CronJob") return undefined;
  if (kind === "Job") return `${status.succeeded ?? 0} of ${spec.completions ?? 1} completed${status.failed ? `, ${status.failed} failed` : ""}`;
  if (kind === "DaemonSet") return `${status.numberReady ?? 0} of ${status.desiredNumberScheduled ?? 0} ready`;
  return `${status.readyReplicas ?? 0} of ${spec.replicas ?? 1} ready`;
}

function podsTab(mine, namespace) {
  const usage = watched("metrics/v1alpha1", "pods", namespace);
  const [sums] = workloads(mine, usage);
  return html`${sums ? card("All pods together", html`<div class="pair">${["cpu", "memory"].map((each) => html`<div><div class="dim">${each === "cpu" ? "CPU" : "Memory"}: used / limit</div>${meter(each, sums[each])}</div>`)}</div>`) : nothing}
    ${podTable(mine, { filter: "", usage })}`;
}

// Right size.

function sizes(object, mine, place) {
  if (!object) return nothing;
  const usage = watched("metrics/v1alpha1", "pods", place.namespace);
  const documents = mine.map((pod) => usageOf(pod, usage)).filter(Boolean);
  const containers = lasting(templateOf(object).spec);
  const found = containers.map((each) => ({ container: each, sizes: proposal(documents, each) }));
  if (!found.some((each) => Object.keys(each.sizes).length)) return html`<p class="notice">Nothing has been measured yet. Usage appears ten seconds after the start of a container.</p>`;
  const rows = found.flatMap(({ container, sizes }) => Object.entries(sizes).map(([resource, size]) => row(container, resource, size)));
  const group = place.version.includes("/") ? place.version.split("/")[0] : "";
  const key = `${place.kind} ${place.namespace}/${place.name}`;
  return html`${card("Requests and limits that fit", html`
      ${plainTable("Requests and limits that fit", ["Container", "Resource", "Request", "Limit", "95th", "Max", "Evidence"], rows)}
      <p class="dim">The request is the highest 95th percentile of the pods, the limit the highest maximum and ${HEADROOM_PERCENT} % more. Only the last day is known: a weekly peak is not in it.</p>
      ${place.kind !== "Job" && may("patch", place.plural, place.namespace, { group, name: place.name }) ? html`<button @click=${() => apply(place, found, key, true)}>Check on the server</button> <button class="primary" @click=${() => apply(place, found, key, false)}>Apply</button>` : nothing}
      ${applied.key === key && applied.said ? html`<p role="status" class="notice ${applied.isGood ? "good" : "bad"}">${applied.said}</p>` : nothing}`)}
    ${found.map(({ container, sizes }) => html`<div class="plots">${Object.entries(sizes).map(([resource, size]) => dayPlot(documents, container.name, resource, size))}</div>`)}`;
}

/** Plot the window of the evidence, of the pod that used most, with the proposal drawn in. */
function dayPlot(documents, container, resource, size) {
  const most = (document) => number(document.containers?.find((each) => each.metadata.name === container)?.metrics["1d"]?.max?.[resource]) ?? 0;
  const busiest = documents.reduce((best, each) => (most(each) > most(best) ? each : best));
  const { namespace, name, uid } = busiest.metadata;
  const day = dayOf(uid);
  const document = day.of(uid, path("metrics/v1alpha1", "pods", namespace, name));
  const course = document?.containers?.find((each) => each.metadata.name === container)?.history?.[size.window];
  const span = size.window === "1d" ? "day" : "hour";
  const title = `${resource} of ${container}: the last ${span} of ${name}`;
  if (!course?.[resource]) return card(title, html`<p class="dim">${day.missing || (document ? `There is no point of the ${span} yet.` : "Loading …")}</p>`);
  const times = courseTimes(course, resource);
  const flat = (text) => times.map(() => number(text));
  const lines = [
    { label: "mean", color: "part-0", values: course[resource].mean, width: 2, fill: true },
    // The hour has no percentiles of its points, which are ten seconds long.
    ...(course[resource]["95th"] ? [{ label: "95th", color: "part-1", values: course[resource]["95th"], width: 1 }] : []),
    { label: "max", color: "part-3", values: course[resource].max, width: 1 },
    { label: "proposed request", color: "dim", values: flat(size.request), width: 1.5, dash: [2, 3] },
    { label: "proposed limit", color: "bad-fill", values: flat(size.limit), width: 2 },
  ];
  const label = `${resource} of ${container} in ${name} over a ${span}, proposed request ${size.request}, limit ${size.limit}`;
  return card(title, html`<k-plot .content=${{ lines, times, marks: [], show: format(resource), range: [times[0], times.at(-1)], binary: resource === "memory", label }}></k-plot>
    <ul class="legend"><li><span class="dot part-0" aria-hidden="true"></span>mean</li>${course[resource]["95th"] ? html`<li><span class="dot part-1" aria-hidden="true"></span>95th</li>` : nothing}<li><span class="dot part-3" aria-hidden="true"></span>max</li><li><span class="dot request" aria-hidden="true"></span>proposed request ${size.request}</li><li><span class="dot limit" aria-hidden="true"></span>proposed limit ${size.limit}</li></ul>`);
}

function dayOf(uid) {
  if (!days.has(uid) && days.size >= MOST_DAYS) days.clear();
  if (!days.has(uid)) days.set(uid, new Course(30000));
  return days.get(uid);
}

function row(container, resource, size) {
  const show = resource === "cpu" ? cpu : bytes;
  const now = (sort) => container.resources?.[sort]?.[resource] ?? "none";
  return [container.name, resource, html`${now("requests")} → <strong>${size.request}</strong>`, html`${now("limits")} → <strong>${size.limit}</strong>`, show(size.usual), show(size.most), `${size.window} window, ${spanText(size.seconds)} seen, ${size.pods} pod${size.pods === 1 ? "" : "s"}${size.reached ? "; the limit was reached" : ""}`];
}

function spanText(seconds) {
  return seconds >= 3600 ? `${round(seconds / 3600)}h` : seconds >= 60 ? `${Math.round(seconds / 60)}m` : `${Math.round(seconds)}s`;
}

async function apply({ kind, version, plural, namespace, name }, found, key, isTry) {
  const sidecars = (container) => (container.restartPolicy === "Always" ? "initContainers" : "containers");
  const spec = {};
  for (const { container, sizes } of found) {
    if (!Object.keys(sizes).length) continue;
    const pick = (field) => Object.fromEntries(Object.entries(sizes).map(([resource, size]) => [resource, size[field]]));
    (spec[sidecars(container)] ??= []).push({ name: container.name, resources: { requests: pick("request"), limits: pick("limit") } });
  }
  const template = { spec: { template: { spec } } };
  const [patch, effect] = kind === "CronJob" ? [{ spec: { jobTemplate: template } }, "The next run has it."] : [template, "The pods are replaced."];
  const query = { fieldManager: "kedge-dashboard", fieldValidation: "Strict", ...(isTry ? { dryRun: "All" } : {}) };
  const headers = { "Content-Type": "application/strategic-merge-patch+json" };
  try {
    await call(path(version, plural, namespace, name), { method: "PATCH", headers, query, body: JSON.stringify(patch) });
    Object.assign(applied, { key, isGood: true, said: isTry ? "The server would accept it." : `Applied. ${effect}` });
  } catch (error) {
    Object.assign(applied, { key, isGood: false, said: error.message });
  }
  redraw();
}
