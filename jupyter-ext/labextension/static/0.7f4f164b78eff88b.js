"use strict";(self.rspackChunktfcluster_lab=self.rspackChunktfcluster_lab||[]).push([[0],{15(e,t,r){var n=r(16),o=r.n(n),a=r(17),i=(r.n(a))()(o());i.push([e.id,`.tfcluster-board {
  border: 1px solid var(--jp-border-color2);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
}

.tfcluster-board-header {
  align-items: center;
  background: var(--jp-layout-color2);
  display: flex;
  gap: 12px;
  padding: 4px 8px;
}

.tfcluster-board-logdir {
  flex: 1;
  font-family: var(--jp-code-font-family);
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.tfcluster-board-header a,
.tfcluster-board-header button {
  background: none;
  border: none;
  color: var(--jp-content-link-color);
  cursor: pointer;
  font: inherit;
  padding: 0;
}

/* The reader drags its lower edge. */
.tfcluster-board-frame {
  height: 640px;
  min-height: 160px;
  overflow: hidden;
  padding-bottom: 12px;
  resize: vertical;
}

.tfcluster-board-frame iframe {
  border: 0;
  display: block;
  height: 100%;
  width: 100%;
}

.tfcluster-board-problem {
  padding: 12px 8px;
  white-space: pre-wrap;
}
`,""]),r.d(t,{},{A:i})},17(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var r="",n=void 0!==t[5];return t[4]&&(r+="@supports (".concat(t[4],") {")),t[2]&&(r+="@media ".concat(t[2]," {")),n&&(r+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),r+=e(t),n&&(r+="}"),t[2]&&(r+="}"),t[4]&&(r+="}"),r}).join("")},t.i=function(e,r,n,o,a){"string"==typeof e&&(e=[[null,e,void 0]]);var i={};if(n)for(var c=0;c<this.length;c++){var s=this[c][0];null!=s&&(i[s]=!0)}for(var l=0;l<e.length;l++){var u=[].concat(e[l]);n&&i[u[0]]||(void 0!==a&&(void 0===u[5]||(u[1]="@layer".concat(u[5].length>0?" ".concat(u[5]):""," {").concat(u[1],"}")),u[5]=a),r&&(u[2]&&(u[1]="@media ".concat(u[2]," {").concat(u[1],"}")),u[2]=r),o&&(u[4]?(u[1]="@supports (".concat(u[4],") {").concat(u[1],"}"),u[4]=o):u[4]="".concat(o)),t.push(u))}},t}},16(e){e.exports=function(e){return e[1]}},9(e){var t=[];function r(e){for(var r=-1,n=0;n<t.length;n++)if(t[n].identifier===e){r=n;break}return r}function n(e,n){for(var o={},a=[],i=0;i<e.length;i++){var c=e[i],s=n.base?c[0]+n.base:c[0],l=o[s]||0,u="".concat(s," ").concat(l);o[s]=l+1;var p=r(u),d={css:c[1],media:c[2],sourceMap:c[3],supports:c[4],layer:c[5]};if(-1!==p)t[p].references++,t[p].updater(d);else{var f=function(e,t){var r=t.domAPI(t);return r.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&r.update(e=t):r.remove()}}(d,n);n.byIndex=i,t.splice(i,0,{identifier:u,updater:f,references:1})}a.push(u)}return a}e.exports=function(e,o){var a=n(e=e||[],o=o||{});return function(e){e=e||[];for(var i=0;i<a.length;i++){var c=r(a[i]);t[c].references--}for(var s=n(e,o),l=0;l<a.length;l++){var u=r(a[l]);0===t[u].references&&(t[u].updater(),t.splice(u,1))}a=s}}},11(e){var t={};e.exports=function(e,r){var n=function(e){if(void 0===t[e]){var r=document.querySelector(e);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(e){r=null}t[e]=r}return t[e]}(e);if(!n)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");n.appendChild(r)}},13(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},12(e,t,r){e.exports=function(e){var t=r.nc;t&&e.setAttribute("nonce",t)}},10(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(r){var n,o,a;n="",r.supports&&(n+="@supports (".concat(r.supports,") {")),r.media&&(n+="@media ".concat(r.media," {")),(o=void 0!==r.layer)&&(n+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),n+=r.css,o&&(n+="}"),r.media&&(n+="}"),r.supports&&(n+="}"),(a=r.sourceMap)&&"u">typeof btoa&&(n+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(n,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},14(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},8(e,t,r){var n=r(9),o=r.n(n),a=r(10),i=r.n(a),c=r(11),s=r.n(c),l=r(12),u=r.n(l),p=r(13),d=r.n(p),f=r(14),v=r.n(f),h=r(15),m={};m.styleTagTransform=v(),m.setAttributes=u(),m.insert=s().bind(null,"head"),m.domAPI=i(),m.insertStyleElement=d(),o()(h.A,m),h.A&&h.A.locals&&h.A.locals}}]);