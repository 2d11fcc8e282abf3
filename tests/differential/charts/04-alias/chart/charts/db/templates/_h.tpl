{{- define "db.name" }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
