// What the page says of a pod: its state, its requests and limits, its owner.

import { number } from "./quantity.js";

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
