{{- define "miniflux.prefix" -}}
d8a-{{ .Application.Instance.Name }}
{{- end -}}

{{- define "miniflux.image" -}}
docker.io/miniflux/miniflux:2.2.6
{{- end -}}

{{- define "postgres.image" -}}
docker.io/library/postgres:17-alpine
{{- end -}}

{{- define "curl.image" -}}
docker.io/curlimages/curl:8.11.1
{{- end -}}

{{- /* Labels of one component; called with (dict "root" $ "component" "web"). */ -}}
{{- define "miniflux.selector" -}}
app.kubernetes.io/name: miniflux
app.kubernetes.io/instance: {{ .root.Application.Instance.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "miniflux.labels" -}}
{{ include "miniflux.selector" . }}
app.kubernetes.io/version: {{ .root.Application.Package.Version | quote }}
app.kubernetes.io/part-of: miniflux
{{- end -}}

{{- /* A Pod that the restricted Pod security standard admits. */ -}}
{{- define "miniflux.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "miniflux.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "miniflux.opml" -}}
<?xml version="1.0" encoding="UTF-8"?>
<opml version="2.0">
  <head><title>{{ .Application.Instance.Name | html }}</title></head>
  <body>
  {{- range .Values.internal.feeds }}
    <outline type="rss" text="{{ .title | html }}" category="{{ .source | html }}" xmlUrl="{{ .url | html }}"/>
  {{- end }}
  </body>
</opml>
{{- end -}}
