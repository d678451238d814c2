// What the page says of a pod: its state, its requests and limits, its owner.

import { age, number } from "./quantity.js";

/** Return the containers that run as long as the pod does: sidecars, then the others. */
export function lasting(spec) {
  const sidecars = (spec.initContainers ?? []).filter((each) => each.restartPolicy === "Always");
  return [...sidecars, ...(spec.containers ?? [])];
}

export function allContainers(spec) {
  return [...(spec.initContainers ?? []), ...(spec.containers ?? []), ...(spec.ephemeralContainers ?? [])];
}

/** Return request and limit of a pod: its own, else those of its containers and sidecars. A limit
 *  exists only if every container has one. */
export function amounts(spec, resource) {
  const own = spec.resources ?? {};
  const parts = lasting(spec).map((each) => each.resources ?? {});
  const requests = parts.map((each) => number(each.requests?.[resource]));
  const limits = parts.map((each) => number(each.limits?.[resource]));
  return {
    request: number(own.requests?.[resource]) ?? sum(requests.filter((each) => each !== undefined)),
    limit: number(own.limits?.[resource]) ?? (limits.includes(undefined) ? undefined : sum(limits)),
  };
}

function sum(values) {
  return values.length ? values.reduce((total, each) => total + each, 0) : undefined;
}

/** Return the usage document's statistics of a pod in a window, `{mean, max, 95th}`. */
export function windowOf(usage, window) {
  if (!usage) return undefined;
  if (usage.total) return usage.total[window];
  return usage.containers?.length === 1 ? usage.containers[0].metrics[window] : undefined;
}

export function used(usage, resource, window = "10s", statistic = "mean") {
  return number(windowOf(usage, window)?.[statistic]?.[resource]);
}

/** Return the state of a pod in one or two words, as kubectl prints it. */
export function stateOf(pod) {
  const status = pod.status ?? {};
  if (pod.metadata.deletionTimestamp) return "Terminating";
  const init = (status.initContainerStatuses ?? []).find((each) => !each.state?.terminated && !each.started);
  if (status.phase === "Pending" && init?.state?.waiting?.reason && init.state.waiting.reason !== "PodInitializing")
    return `Init:${init.state.waiting.reason}`;
  for (const each of status.containerStatuses ?? []) {
    if (each.state?.waiting?.reason) return each.state.waiting.reason;
    if (each.state?.terminated && status.phase !== "Succeeded") return each.state.terminated.reason || "Error";
  }
  if (status.phase === "Succeeded") return "Completed";
  if (status.phase === "Pending" && !pod.spec.nodeName) return "Pending";
  return status.reason || status.phase || "Unknown";
}

/** Return how a state is coloured: good, busy, bad or done. */
export function toneOf(state) {
  if (state === "Running") return "good";
  if (state === "Completed") return "done";
  if (/^(Pending|ContainerCreating|PodInitializing|Terminating|Init:.*Creating)$/.test(state)) return "busy";
  return "bad";
}

export function restarts(pod) {
  return (pod.status?.containerStatuses ?? []).reduce((total, each) => total + each.restartCount, 0);
}

/** Return the workload that a pod belongs to: `{kind, name}`. */
export function ownerOf(pod) {
  const owner = (pod.metadata.ownerReferences ?? []).find((each) => each.controller);
  if (!owner) return { kind: "Pod", name: pod.metadata.name };
  const hash = pod.metadata.labels?.["pod-template-hash"];
  if (owner.kind === "ReplicaSet" && hash && owner.name.endsWith(`-${hash}`))
    return { kind: "Deployment", name: owner.name.slice(0, -hash.length - 1) };
  return { kind: owner.kind, name: owner.name };
}

/** Return how many of a pod's containers and sidecars are ready, as kubectl prints it: `[ready, all]`. */
export function readyOf(pod) {
  const lastingNames = new Set(lasting(pod.spec).map((each) => each.name));
  const statuses = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
  return [statuses.filter((each) => each.ready && lastingNames.has(each.name)).length, lastingNames.size];
}

const RECENT_MS = 10 * 60 * 1000;

/** Return what is wrong with a pod, in words; empty if nothing is known to be. */
export function troubleOf(pod) {
  const status = pod.status ?? {};
  if (status.phase === "Succeeded" || pod.metadata.deletionTimestamp) return "";
  const scheduled = (status.conditions ?? []).find((each) => each.type === "PodScheduled");
  if (scheduled?.status === "False") return scheduled.message || scheduled.reason || "";
  const found = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])].flatMap(containerTrouble);
  return found.length ? found.join("; ") : status.phase === "Failed" ? (status.message ?? status.reason ?? "") : "";
}

function containerTrouble({ name, state = {}, lastState = {}, restartCount = 0 }) {
  const ended = state.terminated?.exitCode ? state.terminated : lastState.terminated;
  const isRecent = ended && (!state.running || Date.now() - Date.parse(ended.finishedAt) < RECENT_MS);
  const end = isRecent ? `${endText(ended)}, ${age(ended.finishedAt)} ago${restartCount ? `; ${restartCount} restart${restartCount === 1 ? "" : "s"}` : ""}` : "";
  const { reason = "", message = "" } = state.waiting ?? {};
  if (/^(|ContainerCreating|PodInitializing)$/.test(reason)) return end ? [`${name} ${end}`] : [];
  return [end ? `${name} ${end}` : `${name}: ${message || reason}`];
}

/** Return how a container ended, in words. */
export function endText({ reason = "", exitCode, signal }) {
  const how = signal ? `signal ${signal}` : `exit code ${exitCode}`;
  return /^(|Error|Completed)$/.test(reason) ? `ended with ${how}` : `ended with ${reason}, ${how}`;
}
