// Login with name and password of a user of the cluster.

import { ownPost } from "../api.js";
import { h, put } from "../dom.js";
import { field } from "../parts.js";

export function show(root, why, done) {
  const name = h("input", { name: "name", autocomplete: "username", required: true, autofocus: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const message = h("p", { class: "login-error", role: "alert" });
  const enter = h("button", { class: "button primary wide", type: "submit" }, "Log in");
  const form = h("form", { class: "login-card", onsubmit: async (event) => {
    event.preventDefault();
    enter.disabled = true;
    message.textContent = "";
    try {
      await ownPost("/login", { name: name.value, password: password.value });
      await done();
    } catch (error) {
      message.textContent = error.message;
      password.select();
      enter.disabled = false;
    }
  } },
  h("img", { src: "/console/static/icon.svg", alt: "", width: 48, height: 48 }),
  h("h1", {}, "Penstock"),
  h("p", { class: "sub" }, why && !why.startsWith("User:ANONYMOUS") ? why : "Log in as a user of this cluster."),
  field("Name", name), field("Password", password), message, enter,
  h("p", { class: "hint" }, "Create users with ", h("code", {}, "penstock user set NAME")));
  put(root, h("div", { class: "login" }, form));
  name.focus();
}
