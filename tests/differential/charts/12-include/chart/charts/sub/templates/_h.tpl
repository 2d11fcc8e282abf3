{{ define "sub.name" }}sub of {{ .Chart.Name }}{{ end }}
{{ define "same" }}from sub{{ end }}
