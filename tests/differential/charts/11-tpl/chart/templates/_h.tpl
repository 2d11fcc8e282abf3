{{ define "h" }}<{{ .Values.n }}>{{ end }}
