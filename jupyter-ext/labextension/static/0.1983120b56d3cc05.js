"use strict";(self.rspackChunktfcluster_lab=self.rspackChunktfcluster_lab||[]).push([[0],{15(e,r,t){var n=t(16),o=t.n(n),a=t(17),i=(t.n(a))()(o());i.push([e.id,`.tfcluster-board {
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

.tfcluster-board-curves {
  padding: 0 8px 8px;
}

.tfcluster-board-curve {
  display: inline-block;
  margin: 4px 18px 4px 0;
}

.tfcluster-board-curve img {
  display: block;
}
`,""]),t.d(r,{},{A:i})},17(e){e.exports=function(e){var r=[];return r.toString=function(){return this.map(function(r){var t="",n=void 0!==r[5];return r[4]&&(t+="@supports (".concat(r[4],") {")),r[2]&&(t+="@media ".concat(r[2]," {")),n&&(t+="@layer".concat(r[5].length>0?" ".concat(r[5]):""," {")),t+=e(r),n&&(t+="}"),r[2]&&(t+="}"),r[4]&&(t+="}"),t}).join("")},r.i=function(e,t,n,o,a){"string"==typeof e&&(e=[[null,e,void 0]]);var i={};if(n)for(var c=0;c<this.length;c++){var s=this[c][0];null!=s&&(i[s]=!0)}for(var l=0;l<e.length;l++){var u=[].concat(e[l]);n&&i[u[0]]||(void 0!==a&&(void 0===u[5]||(u[1]="@layer".concat(u[5].length>0?" ".concat(u[5]):""," {").concat(u[1],"}")),u[5]=a),t&&(u[2]&&(u[1]="@media ".concat(u[2]," {").concat(u[1],"}")),u[2]=t),o&&(u[4]?(u[1]="@supports (".concat(u[4],") {").concat(u[1],"}"),u[4]=o):u[4]="".concat(o)),r.push(u))}},r}},16(e){e.exports=function(e){return e[1]}},9(e){var r=[];function t(e){for(var t=-1,n=0;n<r.length;n++)if(r[n].identifier===e){t=n;break}return t}function n(e,n){for(var o={},a=[],i=0;i<e.length;i++){var c=e[i],s=n.base?c[0]+n.base:c[0],l=o[s]||0,u="".concat(s," ").concat(l);o[s]=l+1;var p=t(u),d={css:c[1],media:c[2],sourceMap:c[3],supports:c[4],layer:c[5]};if(-1!==p)r[p].references++,r[p].updater(d);else{var f=function(e,r){var t=r.domAPI(r);return t.update(e),function(r){r?(r.css!==e.css||r.media!==e.media||r.sourceMap!==e.sourceMap||r.supports!==e.supports||r.layer!==e.layer)&&t.update(e=r):t.remove()}}(d,n);n.byIndex=i,r.splice(i,0,{identifier:u,updater:f,references:1})}a.push(u)}return a}e.exports=function(e,o){var a=n(e=e||[],o=o||{});return function(e){e=e||[];for(var i=0;i<a.length;i++){var c=t(a[i]);r[c].references--}for(var s=n(e,o),l=0;l<a.length;l++){var u=t(a[l]);0===r[u].references&&(r[u].updater(),r.splice(u,1))}a=s}}},11(e){var r={};e.exports=function(e,t){var n=function(e){if(void 0===r[e]){var t=document.querySelector(e);if(window.HTMLIFrameElement&&t instanceof window.HTMLIFrameElement)try{t=t.contentDocument.head}catch(e){t=null}r[e]=t}return r[e]}(e);if(!n)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");n.appendChild(t)}},13(e){e.exports=function(e){var r=document.createElement("style");return e.setAttributes(r,e.attributes),e.insert(r,e.options),r}},12(e,r,t){e.exports=function(e){var r=t.nc;r&&e.setAttribute("nonce",r)}},10(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var r=e.insertStyleElement(e);return{update:function(t){var n,o,a;n="",t.supports&&(n+="@supports (".concat(t.supports,") {")),t.media&&(n+="@media ".concat(t.media," {")),(o=void 0!==t.layer)&&(n+="@layer".concat(t.layer.length>0?" ".concat(t.layer):""," {")),n+=t.css,o&&(n+="}"),t.media&&(n+="}"),t.supports&&(n+="}"),(a=t.sourceMap)&&"u">typeof btoa&&(n+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(n,r,e.options)},remove:function(){var e;null===(e=r).parentNode||e.parentNode.removeChild(e)}}}},14(e){e.exports=function(e,r){if(r.styleSheet)r.styleSheet.cssText=e;else{for(;r.firstChild;)r.removeChild(r.firstChild);r.appendChild(document.createTextNode(e))}}},8(e,r,t){var n=t(9),o=t.n(n),a=t(10),i=t.n(a),c=t(11),s=t.n(c),l=t(12),u=t.n(l),p=t(13),d=t.n(p),f=t(14),v=t.n(f),h=t(15),m={};m.styleTagTransform=v(),m.setAttributes=u(),m.insert=s().bind(null,"head"),m.domAPI=i(),m.insertStyleElement=d(),o()(h.A,m),h.A&&h.A.locals&&h.A.locals}}]);