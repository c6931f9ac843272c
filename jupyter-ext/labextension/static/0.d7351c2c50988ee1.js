"use strict";(self.rspackChunktfcluster_lab=self.rspackChunktfcluster_lab||[]).push([[0],{23(e,t,r){var o=r(24),n=r.n(o),a=r(25),l=(r.n(a))()(n());l.push([e.id,'.uplot, .uplot *, .uplot *::before, .uplot *::after {box-sizing: border-box;}.uplot {font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif, "Apple Color Emoji", "Segoe UI Emoji", "Segoe UI Symbol", "Noto Color Emoji";line-height: 1.5;width: min-content;}.u-title {text-align: center;font-size: 18px;font-weight: bold;}.u-wrap {position: relative;user-select: none;}.u-over, .u-under {position: absolute;}.u-under {overflow: hidden;}.uplot canvas {display: block;position: relative;width: 100%;height: 100%;}.u-axis {position: absolute;}.u-legend {font-size: 14px;margin: auto;text-align: center;}.u-inline {display: block;}.u-inline * {display: inline-block;}.u-inline tr {margin-right: 16px;}.u-legend th {font-weight: 600;}.u-legend th > * {vertical-align: middle;display: inline-block;}.u-legend .u-marker {width: 1em;height: 1em;margin-right: 4px;background-clip: padding-box !important;}.u-inline.u-live th::after {content: ":";vertical-align: middle;}.u-inline:not(.u-live) .u-value {display: none;}.u-series > * {padding: 4px;}.u-series th {cursor: pointer;}.u-legend .u-off > * {opacity: 0.3;}.u-select {background: rgba(0,0,0,0.07);position: absolute;pointer-events: none;}.u-cursor-x, .u-cursor-y {position: absolute;left: 0;top: 0;pointer-events: none;will-change: transform;}.u-hz .u-cursor-x, .u-vt .u-cursor-y {height: 100%;border-right: 1px dashed #607D8B;}.u-hz .u-cursor-y, .u-vt .u-cursor-x {width: 100%;border-bottom: 1px dashed #607D8B;}.u-cursor-pt {position: absolute;top: 0;left: 0;border-radius: 50%;border: 0 solid;pointer-events: none;will-change: transform;/*this has to be !important since we set inline "background" shorthand */background-clip: padding-box !important;}.u-axis.u-off, .u-select.u-off, .u-cursor-x.u-off, .u-cursor-y.u-off, .u-cursor-pt.u-off {display: none;}',""]),r.d(t,{},{A:l})},26(e,t,r){var o=r(24),n=r.n(o),a=r(25),l=(r.n(a))()(n());l.push([e.id,`.tfcluster-board {
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

.tfcluster-board-page iframe {
  border: 0;
  height: 100%;
  width: 100%;
}

.tfcluster-panel,
.tfcluster-view,
.tfcluster-logs {
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  overflow: auto;
  padding: 8px;
}

.tfcluster-panel:focus,
.tfcluster-view:focus {
  outline: none; /* it has the focus for the keyboard's next step only */
}

.tfcluster-panel {
  min-width: 310px !important; /* Lumino sets the side bar's own */
}

.tfcluster-below {
  min-height: 40vh;
}

.tfcluster-status {
  align-items: center;
  display: flex;
  height: 100%;
}

.tfcluster-panel h3,
.tfcluster-view h3 {
  font-size: var(--jp-ui-font-size1);
  margin: 12px 0 4px;
  overflow-wrap: anywhere;
}

.tfcluster-panel p {
  margin: 2px 0;
  overflow-wrap: anywhere;
}

.tfcluster-panel ul {
  margin: 0;
  padding-left: 16px;
}

.tfcluster-choice select {
  display: block;
  margin-top: 2px;
  max-width: 100%;
  width: 100%;
}

.tfcluster-buttons {
  display: flex;
  flex-wrap: wrap;
  gap: 4px;
  margin-top: 8px;
}

.tfcluster-buttons button.jp-mod-styled {
  height: 24px;
  line-height: 22px;
  padding: 0 8px;
}

.tfcluster-panel progress {
  width: 100%;
}

.tfcluster-panel table {
  border-collapse: collapse;
  width: 100%;
}

.tfcluster-panel th,
.tfcluster-panel td {
  font-weight: normal;
  padding: 1px 4px 1px 0;
  text-align: right;
  white-space: nowrap;
}

.tfcluster-panel th:first-child,
.tfcluster-panel td:nth-child(2),
.tfcluster-panel th:nth-child(2),
.tfcluster-panel .tfcluster-use td,
.tfcluster-panel .tfcluster-remark td {
  text-align: left;
  white-space: normal;
}

.tfcluster-panel .tfcluster-use td,
.tfcluster-panel .tfcluster-remark td {
  overflow-wrap: anywhere;
  padding-left: 12px;
}

.tfcluster-metrics {
  max-height: 8em;
  overflow: auto;
}

.tfcluster-panel thead th,
.tfcluster-use td,
.tfcluster-faint {
  color: var(--jp-ui-font-color2);
}

.tfcluster-link {
  background: none;
  border: 0;
  color: var(--jp-content-link-color);
  cursor: pointer;
  font: inherit;
  padding: 0;
  text-align: left;
}

.tfcluster-tone-good .tfcluster-state::before,
.tfcluster-tone-bad .tfcluster-state::before,
.tfcluster-tone-busy .tfcluster-state::before {
  content: "●";
  margin-right: 4px;
}

.tfcluster-tone-good .tfcluster-state::before {
  color: var(--jp-success-color1);
}

.tfcluster-tone-busy .tfcluster-state::before,
.tfcluster-tone-busy.tfcluster-remark td,
.tfcluster-busy {
  color: var(--jp-warn-color0);
}

.tfcluster-tone-bad .tfcluster-state,
.tfcluster-tone-bad.tfcluster-remark td,
.tfcluster-problem {
  color: var(--jp-error-color1);
}

.tfcluster-tone-bad {
  font-weight: 600;
}

.tfcluster-runs {
  border: 1px solid var(--jp-border-color2);
  max-height: 140px;
  overflow: auto;
}

.tfcluster-runs label {
  display: block;
}

.tfcluster-charts {
  display: grid;
  gap: 12px;
  grid-template-columns: repeat(auto-fill, minmax(320px, 1fr));
}

.tfcluster-chart .u-title,
.tfcluster-chart .u-legend {
  font-size: var(--jp-ui-font-size1);
}

.tfcluster-logs {
  display: flex;
  flex-direction: column;
  overflow: hidden;
}

.tfcluster-logbar {
  align-items: center;
  display: flex;
  flex-wrap: wrap;
  gap: 6px;
  padding-bottom: 6px;
}

.tfcluster-logbar input {
  flex: 1;
  min-width: 120px;
}

.tfcluster-lines {
  border: 1px solid var(--jp-border-color2);
  flex: 1;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
  overflow: auto;
}

.tfcluster-line {
  contain-intrinsic-block-size: auto 1.2em; /* else a line that is not in view has no height, and none can be scrolled to */
  content-visibility: auto;
  overflow-wrap: anywhere;
  padding: 0 4px;
  white-space: pre-wrap;
}

.tfcluster-marked {
  outline: 1px solid var(--jp-warn-color1);
  outline-offset: -1px;
}

.tfcluster-stderr {
  background: var(--jp-rendermime-error-background);
}

.tfcluster-tail {
  background: var(--jp-rendermime-error-background);
  font-size: var(--jp-code-font-size);
  margin: 4px 0;
  max-height: 160px;
  overflow: auto;
  padding: 4px;
  white-space: pre-wrap;
}
`,""]),r.d(t,{},{A:l})},25(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var r="",o=void 0!==t[5];return t[4]&&(r+="@supports (".concat(t[4],") {")),t[2]&&(r+="@media ".concat(t[2]," {")),o&&(r+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),r+=e(t),o&&(r+="}"),t[2]&&(r+="}"),t[4]&&(r+="}"),r}).join("")},t.i=function(e,r,o,n,a){"string"==typeof e&&(e=[[null,e,void 0]]);var l={};if(o)for(var i=0;i<this.length;i++){var s=this[i][0];null!=s&&(l[s]=!0)}for(var u=0;u<e.length;u++){var c=[].concat(e[u]);o&&l[c[0]]||(void 0!==a&&(void 0===c[5]||(c[1]="@layer".concat(c[5].length>0?" ".concat(c[5]):""," {").concat(c[1],"}")),c[5]=a),r&&(c[2]&&(c[1]="@media ".concat(c[2]," {").concat(c[1],"}")),c[2]=r),n&&(c[4]?(c[1]="@supports (".concat(c[4],") {").concat(c[1],"}"),c[4]=n):c[4]="".concat(n)),t.push(c))}},t}},24(e){e.exports=function(e){return e[1]}},17(e){var t=[];function r(e){for(var r=-1,o=0;o<t.length;o++)if(t[o].identifier===e){r=o;break}return r}function o(e,o){for(var n={},a=[],l=0;l<e.length;l++){var i=e[l],s=o.base?i[0]+o.base:i[0],u=n[s]||0,c="".concat(s," ").concat(u);n[s]=u+1;var p=r(c),f={css:i[1],media:i[2],sourceMap:i[3],supports:i[4],layer:i[5]};if(-1!==p)t[p].references++,t[p].updater(f);else{var d=function(e,t){var r=t.domAPI(t);return r.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&r.update(e=t):r.remove()}}(f,o);o.byIndex=l,t.splice(l,0,{identifier:c,updater:d,references:1})}a.push(c)}return a}e.exports=function(e,n){var a=o(e=e||[],n=n||{});return function(e){e=e||[];for(var l=0;l<a.length;l++){var i=r(a[l]);t[i].references--}for(var s=o(e,n),u=0;u<a.length;u++){var c=r(a[u]);0===t[c].references&&(t[c].updater(),t.splice(c,1))}a=s}}},19(e){var t={};e.exports=function(e,r){var o=function(e){if(void 0===t[e]){var r=document.querySelector(e);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(e){r=null}t[e]=r}return t[e]}(e);if(!o)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");o.appendChild(r)}},21(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},20(e,t,r){e.exports=function(e){var t=r.nc;t&&e.setAttribute("nonce",t)}},18(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(r){var o,n,a;o="",r.supports&&(o+="@supports (".concat(r.supports,") {")),r.media&&(o+="@media ".concat(r.media," {")),(n=void 0!==r.layer)&&(o+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),o+=r.css,n&&(o+="}"),r.media&&(o+="}"),r.supports&&(o+="}"),(a=r.sourceMap)&&"u">typeof btoa&&(o+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(o,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},22(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},16(e,t,r){var o=r(17),n=r.n(o),a=r(18),l=r.n(a),i=r(19),s=r.n(i),u=r(20),c=r.n(u),p=r(21),f=r.n(p),d=r(22),h=r.n(d),g=r(23),m={};m.styleTagTransform=h(),m.setAttributes=c(),m.insert=s().bind(null,"head"),m.domAPI=l(),m.insertStyleElement=f(),n()(g.A,m),g.A&&g.A.locals&&g.A.locals;var b=r(26),v={};v.styleTagTransform=h(),v.setAttributes=c(),v.insert=s().bind(null,"head"),v.domAPI=l(),v.insertStyleElement=f(),n()(b.A,v),b.A&&b.A.locals&&b.A.locals}}]);