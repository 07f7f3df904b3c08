{{/* What all pods and containers have in common. `discoverybot.labels` takes (root, component). */}}

{{- define "discoverybot.selector" -}}
app.kubernetes.io/name: discoverybot
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "discoverybot.labels" -}}
{{ include "discoverybot.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end }}

{{- define "discoverybot.tag" -}}
{{ .Values.images.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Takes (root, groups of settings, the most special one last). */}}
{{- define "discoverybot.settings" -}}
{{- $said := dict -}}
{{- $root := index . 0 -}}
{{- range index . 1 -}}
{{- $said = mergeOverwrite $said (get $root.Values.settings . | default dict | deepCopy) -}}
{{- end -}}
{{- range $name, $value := $said }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* By the container: the groups that it reads. */}}
{{- define "discoverybot.groups" -}}
gateway: [all, platform, server, gateway]
worker: [all, platform, server, worker]
beat: [all, platform, server]
tailer: [all, platform, node]
scrapyd: [all, node]
{{- end }}

{{/* Takes (root, containers). A change of a setting starts those pods anew that read it, and no others. */}}
{{- define "discoverybot.annotations" -}}
{{- $root := index . 0 -}}
{{- $groups := include "discoverybot.groups" $root | fromYaml -}}
{{- $read := "" -}}
{{- range index . 1 -}}
{{- $read = print $read . (include "discoverybot.settings" (list $root (get $groups .))) -}}
{{- end -}}
checksum/settings: {{ sha256sum $read }}
{{- end }}

{{/* What every pod has. Takes (root, component). */}}
{{- define "discoverybot.pod" -}}
{{- $root := index . 0 -}}
{{- $own := get $root.Values (index . 1) -}}
automountServiceAccountToken: false
# they would be variables that look like misspelt settings of ours
enableServiceLinks: false
securityContext:
  {{- include "discoverybot.podSecurity" $root | nindent 2 }}
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $root.Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with pick $own "nodeSelector" "tolerations" "affinity" }}
{{- range $name, $value := . }}
{{- with $value }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "discoverybot.selector" . | nindent 8 }}
{{- end }}

{{/* Bytes of all crawls of a node at their limits, and 4 GiB: Scrapyd, warm processes, a listing, /tmp and /dev/shm. */}}
{{- define "discoverybot.nodeMemory" -}}
{{- $settings := merge (dict) .Values.settings.node .Values.settings.all -}}
{{- $each := int64 (get $settings "CRAWL_MEMORY_LIMIT" | default "2147483648") -}}
{{- if not $each -}}
{{- fail "CRAWL_MEMORY_LIMIT is 0: say what a node may take (node.resources.limits.memory)" -}}
{{- end -}}
{{- div (add (mul (int64 (get $settings "NODE_SLOTS" | default "8")) $each) 4294967296) 1048576 }}Mi
{{- end }}

{{- define "discoverybot.nodeResources" -}}
{{- $resources := deepCopy .Values.node.resources -}}
{{- if not (dig "limits" "memory" "" $resources) -}}
{{- $resources = merge $resources (dict "limits" (dict "memory" (include "discoverybot.nodeMemory" .))) -}}
{{- end -}}
{{- toYaml $resources }}
{{- end }}

{{/* No container has a right of root's, but for one of a node's. */}}
{{- define "discoverybot.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "discoverybot.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Takes (root, names of secrets). Those of S3 need not be there. */}}
{{- define "discoverybot.secrets" -}}
projected:
  defaultMode: 0440
  sources:
    - secret:
        name: {{ (index . 0).Values.secret }}
        items:
          {{- range index . 1 }}
          - {key: {{ . }}, path: {{ . }}}
          {{- end }}
    - secret:
        name: {{ (index . 0).Values.secret }}
        optional: true
        items:
          - {key: files_access_key, path: files_access_key}
          - {key: files_secret_key, path: files_secret_key}
{{- end }}
