// Values of the downward API, as far as the pod's own document tells them.

import { number } from "./quantity.js";
import { allContainers } from "./pods.js";

/** Shown for what only the node knows. */
export const ON_NODE = "(set on the node)";

/** Return the value of a field; ON_NODE for those that only the node resolves. */
export function fieldValue(pod, fieldPath) {
  const keyed = /^metadata\.(labels|annotations)\['(.*)'\]$/.exec(fieldPath);
  if (keyed) return pod.metadata[keyed[1]]?.[keyed[2]] ?? "";
  const all = /^metadata\.(labels|annotations)$/.exec(fieldPath);
  if (all) return Object.entries(pod.metadata[all[1]] ?? {}).sort().map(([key, value]) => `${key}=${JSON.stringify(value)}`).join("\n");
  const known = {
    "metadata.name": pod.metadata.name,
    "metadata.namespace": pod.metadata.namespace,
    "metadata.uid": pod.metadata.uid,
    "spec.nodeName": pod.spec.nodeName,
    "spec.serviceAccountName": pod.spec.serviceAccountName,
    "status.hostIP": pod.status?.hostIP,
    "status.podIP": pod.status?.podIP,
    "status.podIPs": pod.status?.podIPs?.map((each) => each.ip).join(","),
    "status.hostIPs": pod.status?.hostIPs?.map((each) => each.ip).join(","),
  };
  return fieldPath in known ? (known[fieldPath] ?? "") : ON_NODE;
}

/** Return a request or limit of a container in units of the divisor, rounded up. A missing limit is
 *  what the node has, which is not in the pod. */
export function resourceValue(pod, container, { containerName, resource, divisor }) {
  const own = allContainers(pod.spec).find((each) => each.name === (containerName || container));
  const [sort, ...rest] = resource.split(".");
  const amount = number(own?.resources?.[sort]?.[rest.join(".")]);
  const unit = number(divisor) || 1;
  if (amount === undefined) return sort === "limits" ? ON_NODE : "0";
  return String(Math.ceil(Math.round((amount / unit) * 1e6) / 1e6));
}

/** Return `{value, from}` of the source of a variable or file that needs no other object. */
export function sourceValue(pod, container, source) {
  if (source.fieldRef) return { value: fieldValue(pod, source.fieldRef.fieldPath), from: `field ${source.fieldRef.fieldPath}` };
  if (source.resourceFieldRef) {
    const { containerName, resource, divisor } = source.resourceFieldRef;
    const unit = divisor && divisor !== "0" ? `, in ${divisor}` : "";
    return { value: resourceValue(pod, container, source.resourceFieldRef), from: `${resource} of ${containerName ? `container ${containerName}` : "the container"}${unit}` };
  }
  if (source.containerFieldRef) return { value: ON_NODE, from: `${source.containerFieldRef.fieldPath ?? "fields"} of the container` };
  return null;
}
