// Swagger UI over this console's own document. Its requests carry the session and its CSRF token;
// nothing is asked of another host.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("api-explorer");
  SwaggerUIBundle({
    domNode: place,
    url: place.dataset.schema,
    validatorUrl: null,
    docExpansion: "none",
    defaultModelsExpandDepth: -1,
    filter: true,
    tryItOutEnabled: true,
    persistAuthorization: false,
    showMutatedRequest: false, // a token of this page is of no use in a shell
    presets: [SwaggerUIBundle.presets.apis],
    requestInterceptor: (request) => {
      if (new URL(request.url, location.href).origin !== location.origin) {
        throw new Error("Only this console is asked.");
      }
      request.headers["X-CSRFToken"] = place.dataset.csrf;
      return request;
    },
  });
});
