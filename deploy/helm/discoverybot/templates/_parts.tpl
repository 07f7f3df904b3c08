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

{{/* A change of settings starts the pods anew. */}}
{{- define "discoverybot.annotations" -}}
checksum/settings: {{ toJson .Values.settings | sha256sum }}
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
