{{ define "p" }}p{{ end }}
