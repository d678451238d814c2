// The containers of a pod: what each does now, how it ended last, and the devices it holds.

import { html, nothing } from "../lit.js";
import { endText, toneOf } from "../pods.js";
import { age } from "../quantity.js";
import { badge, card, plainTable } from "../parts.js";

export function containerCard(pod) {
  const { status = {}, spec } = pod;
  const sorts = [[spec.initContainers, status.initContainerStatuses, "init"], [spec.containers, status.containerStatuses, ""], [spec.ephemeralContainers, status.ephemeralContainerStatuses, "debug"]];
  const rows = sorts.flatMap(([containers, statuses, sort]) => (containers ?? []).map((each) => row(each, (statuses ?? []).find((one) => one.name === each.name), each.restartPolicy === "Always" ? "sidecar" : sort)));
  return card("Containers", plainTable("Containers", ["Container", "State", "Ready", "Restarts", "Last end", "Image", "Devices"], rows));
}

function row(container, status, sort) {
  const [word, since, tone] = stateWord(status?.state ?? {});
  const last = status?.lastState?.terminated;
  return [
    html`${container.name}${sort ? html` <span class="dim">${sort}</span>` : nothing}`,
    html`${badge(word, tone)} ${since ? html`<span class="dim">${age(since)}</span>` : nothing}`,
    status?.ready ? "yes" : "no",
    status?.restartCount ?? 0,
    last ? `${endText(last)}, ${age(last.finishedAt)} ago` : "–",
    container.image ?? "",
    devicesOf(status) || "–",
  ];
}

function stateWord({ running, waiting, terminated }) {
  if (running) return ["Running", running.startedAt, "good"];
  if (terminated) return [terminated.reason || "Ended", terminated.finishedAt, terminated.exitCode ? "bad" : "done"];
  const reason = waiting?.reason ?? "Waiting";
  return [reason, "", reason === "Waiting" ? "busy" : toneOf(reason)];
}

/** Return the devices of a container with their health, as the node reports them. */
function devicesOf(status) {
  return (status?.allocatedResourcesStatus ?? []).flatMap((each) => (each.resources ?? []).map((device) => `${each.name}: ${device.resourceID}${device.health && device.health !== "Healthy" ? ` (${device.health})` : ""}`)).join(", ");
}
