// Shows the alert of inc_passkey.html when the browser returns no passkey (allauth.error of webauthn.js).
"use strict";
document.addEventListener("allauth.error", (event) => {
  event.preventDefault();
  document.getElementById("passkey_error").hidden = false;
});
