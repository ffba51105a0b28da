// Draws shapes on a canvas. Needs `g`, its context, and `draw`, called when an image has loaded.
// A shape: [kind, x, y, size, fill, stroke, width, entity, rotate, radius, text, anchor, points]
const pictures={},light=color=>color&&color.split(" ")[0];
function path(s){const p=new Path2D,[kind,x,y,z]=s;
if(kind=="r"||kind=="i")p.roundRect(x-z[0]/2,y-z[1]/2,z[0],z[1],s[9]||0);
else if(kind=="c")p.arc(x,y,z[0],0,7);
else if(kind=="t"){g.font=z[0]+"px sans-serif";const w=g.measureText(s[10]||"").width;p.rect(x-(s[11]=="s"?0:s[11]=="e"?w:w/2),y-z[0]/2,w,z[0])}
else{s[12].forEach(([a,b],i)=>i?p.lineTo(a,b):p.moveTo(a,b));if(kind=="p")p.closePath()}
return p}
function turned(s,f){if(!s[8])return f();g.save();g.translate(s[1],s[2]);g.rotate(s[8]*Math.PI/180);g.translate(-s[1],-s[2]);const r=f();g.restore();return r}
function paint(s){turned(s,()=>{const[kind,x,y,z,fill,stroke]=s;
if(kind=="t"){if(!fill)return;g.font=z[0]+"px sans-serif";g.fillStyle=light(fill);g.textAlign={s:"start",e:"end"}[s[11]]||"center";g.fillText(s[10]||"",x,y+.35*z[0])}
else if(kind=="i"){let im=pictures[s[10]];if(!im){im=pictures[s[10]]=new Image;im.onload=draw;im.src=s[10]}if(im.complete&&im.naturalWidth)g.drawImage(im,x-z[0]/2,y-z[1]/2,z[0],z[1])}
else{const p=s.p||=path(s);if(fill){g.fillStyle=light(fill);g.fill(p)}if(stroke){g.strokeStyle=light(stroke);g.lineWidth=s[6];g.lineJoin="round";g.stroke(p)}}})}
