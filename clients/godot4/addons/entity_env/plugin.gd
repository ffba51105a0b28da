# Lists the addon in the editor's plugins. Games need it only in their folder, not enabled.
@tool
extends EditorPlugin
