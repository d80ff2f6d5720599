// The documentation of the API: Swagger UI shows the server's OpenAPI document.

import { request, token } from "./api.js";
import { $ } from "./dom.js";
import { startPage, troublePanel } from "./shell.js";

const withToken = (call) => {
  if (token.get() && new URL(call.url, location.href).origin === location.origin) call.headers.Authorization ??= `Bearer ${token.get()}`;
  return call;
};

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

startPage(async () => {
  try {
    const spec = await request("/openapi.json");
    $("#swagger").replaceChildren();
    window.SwaggerUIBundle({ spec, domNode: $("#swagger"), requestInterceptor: withToken, validatorUrl: null, deepLinking: true, defaultModelsExpandDepth: 0 });
  } catch (problem) {
    if (problem.status === 401) throw problem;
    $("#swagger").replaceChildren(troublePanel(problem, () => location.reload()));
  }
});
