{{- define "rec" -}}
{{- if gt (int .) 0 -}}({{ . }}{{ include "rec" (sub . 1) }}){{- end -}}
{{- end -}}
{{ define "same" }}from _a{{ end }}
{{ define "dot" }}{{ kindOf . }}:{{ toJson . }}{{ end }}
