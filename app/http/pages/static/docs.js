"use strict";
// "Try it": sends what the form says, and shows what comes back.
const token = document.getElementById("token");

async function attempt(form, shown) {
  let path = form.dataset.path;
  let body;
  const query = new URLSearchParams();
  for (const field of form.querySelectorAll("[data-in]")) {
    const value = field.value.trim();
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(value));
    else if (field.dataset.in === "body") body = value || undefined;
    else if (value !== "") query.append(field.name, value);
  }
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token && token.value) headers.Authorization = `Bearer ${token.value}`;
  const url = path + (query.size ? `?${query}` : "");
  const answer = await fetch(url, { method: form.dataset.method, headers, body, cache: "no-store" });
  const text = await answer.text();
  const size = text.length > 20000 ? `${text.slice(0, 20000)}\n…` : text;
  shown.textContent = `${form.dataset.method} ${url}\n${answer.status} ${answer.statusText}\n\n${size}`;
}

for (const form of document.querySelectorAll("form.tries")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!form.dataset.path) return;
    const shown = form.nextElementSibling;
    shown.hidden = false;
    try {
      await attempt(form, shown);
    } catch (error) {
      shown.textContent = `No answer: ${error.message}`;
    }
  });
}
