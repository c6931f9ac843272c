// Some proxies let GET alone through, such as that of YARN's ResourceManager. What
// TensorBoard would send is asked for instead, with its body in the query; who serves this
// file makes of it again what it was. A body that is too long for a query is sent, and
// refused by the proxy.
(() => {
  "use strict";
  const most = 30000; // bytes of a body: a query's whole line may have 64 KiB
  const xhr = XMLHttpRequest.prototype;
  const { open, send, setRequestHeader } = xhr;
  const posts = new WeakMap(); // of requests that were opened to be sent

  // safe is what no proxy takes apart and puts together otherwise.
  const safe = (bytes) =>
    btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const encode = (text) => new TextEncoder().encode(text);

  const isType = ([name]) => name.toLowerCase() === "content-type";

  // asks is the address that asks for what would be sent, "" where none can.
  const asks = (url, body, headers) => {
    let type = (headers.find(isType) ?? [])[1];
    if (body instanceof FormData && [...body.values()].every((v) => typeof v === "string")) {
      body = new URLSearchParams(body);
      type = undefined;
    }
    if (body instanceof URLSearchParams) {
      body = body.toString();
      type ??= "application/x-www-form-urlencoded;charset=UTF-8";
    }
    if (typeof body !== "string") return "";
    const bytes = encode(body);
    if (bytes.length > most) return "";
    const kind = safe(encode(type ?? "text/plain;charset=UTF-8"));
    return `${url}${url.includes("?") ? "&" : "?"}tfcluster-body=${safe(bytes)}&tfcluster-type=${kind}`;
  };

  xhr.open = function (method, url, ...rest) {
    posts.delete(this);
    if (String(method).toUpperCase() === "POST") posts.set(this, { url: String(url), rest, headers: [] });
    return open.call(this, method, url, ...rest);
  };
  xhr.setRequestHeader = function (name, value) {
    posts.get(this)?.headers.push([name, value]);
    return setRequestHeader.call(this, name, value);
  };
  xhr.send = function (body) {
    const post = posts.get(this);
    const url = post && asks(post.url, body, post.headers);
    if (!url) return send.call(this, body);
    open.call(this, "GET", url, ...post.rest); // forgets the headers
    for (const header of post.headers) if (!isType(header)) setRequestHeader.call(this, ...header);
    return send.call(this, null);
  };

  const fetches = window.fetch;
  window.fetch = function (what, how) {
    const plain = typeof what === "string" || what instanceof URL;
    if (!plain || String(how?.method).toUpperCase() !== "POST") return fetches.call(this, what, how);
    const headers = [...new Headers(how.headers)];
    const url = asks(String(what), how.body, headers);
    if (!url) return fetches.call(this, what, how);
    return fetches.call(this, url, { ...how, method: "GET", body: undefined, headers: headers.filter((h) => !isType(h)) });
  };
})();
