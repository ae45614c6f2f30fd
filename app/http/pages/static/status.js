"use strict";
// Fetches this page again every two seconds and puts the new parts in place of the old ones.
const parts = ["head", "live", "sequences", "as-of"]; // not the boxes, into which somebody may be typing

// Without the id that was asked about, for its answer stays as it is.
function address() {
  const query = new URLSearchParams(location.search);
  for (const box of document.querySelectorAll("#decode [name]:not([type=hidden])")) query.delete(box.name);
  return location.pathname + (query.size ? `?${query}` : "");
}

async function refresh() {
  try {
    const answer = await fetch(address(), { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of parts) document.getElementById(id)?.replaceWith(fresh.getElementById(id));
    document.title = fresh.title;
    document.getElementById("lost").hidden = true;
  } catch {
    document.getElementById("lost").hidden = false;
  }
}

setInterval(() => document.hidden || refresh(), 2000);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
